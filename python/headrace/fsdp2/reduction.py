"""From one group's reduced rows to `.grad`, as FSDP2 ends its own reduction: replicas, hooks,
dtype, accumulation."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam


class Request(Protocol):
    """What is asked beside the sum over the shard mesh; see the hooks' Reduction."""

    orig_dtype: torch.dtype
    divide_factor: float | None
    all_reduce_group: dist.ProcessGroup | None
    all_reduce: bool
    partial: torch.Tensor | None
    all_reduce_hook: Callable[[torch.Tensor], None] | None


@torch.no_grad()
def finish(
    params: Sequence[FSDPParam],
    offsets: Sequence[int],
    packed: torch.Tensor,
    request: Request,
    average_replicas: bool,
) -> torch.Tensor | None:
    """Ends the reduction of the parameters whose rows of the shard mesh's sum begin at `offsets` of
    `packed` (fp32, flat). Returns `packed` where it must wait for a later reduction.

    Each parameter's `.grad` becomes a view of `packed` in `orig_dtype`, or is added to; its
    post-accumulate hooks run.
    """
    if request.all_reduce_group is not None:
        if request.partial is not None:
            packed += request.partial
        if not request.all_reduce:
            return packed
        operation = dist.ReduceOp.AVG if average_replicas else dist.ReduceOp.SUM
        dist.all_reduce(packed, group=request.all_reduce_group, op=operation)
    if request.all_reduce_hook is not None:
        request.all_reduce_hook(packed)
    packed = packed.to(request.orig_dtype)
    for param, offset in zip(params, offsets, strict=True):
        rows = torch.as_strided(
            packed, param.sharded_size, param.contiguous_sharded_stride, storage_offset=offset
        )
        if param.sharded_param.grad is None:
            param.sharded_param.grad = param.to_sharded_dtensor(rows)
        else:
            param.sharded_param.grad._local_tensor += rows
        hooks = getattr(param.sharded_param, "_post_accumulate_grad_hooks", None) or {}
        for hook in list(hooks.values()):
            hook(param.sharded_param)
    return None
