"""Optimizer steps where they would train nothing, or change what peers are reading."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from headrace.errors import OperationError
from headrace.fsdp2.sharded_model import ShardedModel


@contextmanager
def refused_steps(model: ShardedModel) -> Iterator[None]:
    """Within it a step of an optimizer over any of the model's parameters raises: gradients of an
    on-demand bracket are written when it is left."""

    def refuse(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        names = {id(p.sharded_param): model.parameter_name(p) for _, _, p in model.parameters()}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if name := names.get(id(parameter)):
                    raise OperationError(
                        f"optimizer.step() inside the bracket, over parameter '{name}': gradients "
                        "are written on leaving it, and peers may be reading parameters until "
                        "then; move clipping, optimizer.step() and zero_grad() after the bracket"
                    )

    handle = register_optimizer_step_pre_hook(refuse)
    try:
        yield
    finally:
        handle.remove()
