"""Checkpoint and resume: model, optimizer, schedule and place in the data."""

from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


class HasState(Protocol):
    def state_dict(self) -> dict: ...
    def load_state_dict(self, state: dict) -> None: ...


class _Training:
    """Everything a resumed run needs, as one stateful object."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        others: dict[str, HasState],
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._others = others

    def state_dict(self) -> dict:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        others = {name: other.state_dict() for name, other in self._others.items()}
        return {"model": model, "optimizer": optimizer, **others}

    def load_state_dict(self, state: dict) -> None:
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        for name, other in self._others.items():
            other.load_state_dict(state[name])


def save(
    directory: Path,
    steps_done: int,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    others: dict[str, HasState],
) -> None:
    """Writes directory/step-NNNNNN, its .metadata last: a half-written one is never resumed."""
    dcp.save(
        {"training": _Training(model, optimizer, others)},
        checkpoint_id=directory / f"step-{steps_done:06d}",
        no_dist=not dist.is_initialized(),
    )


def resume(
    directory: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    others: dict[str, HasState],
) -> int:
    """Loads the newest complete checkpoint; returns how many steps had been done."""
    complete = sorted(path.parent for path in directory.glob("step-*/.metadata"))
    if not complete:
        raise ValueError(f"--resume: no complete checkpoint in {directory}")
    newest = complete[-1]
    dcp.load(
        {"training": _Training(model, optimizer, others)},
        checkpoint_id=newest,
        no_dist=not dist.is_initialized(),
    )
    return int(newest.name.removeprefix("step-"))
