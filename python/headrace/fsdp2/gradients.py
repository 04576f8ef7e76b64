"""Gradients on their way in, as tensors that the engine can read, and from settled sums to
`.grad`: what any rank touched is set on every rank, what none touched stays."""

from typing import Protocol

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.tensor import DTensor

from headrace._engine import DType
from headrace.errors import OperationError
from headrace.fsdp2.sharded_model import ShardedModel, dtypes


class Sums(Protocol):
    """The engine after settle."""

    def collect(
        self, group: int, parameter: int, address: int, dtype: DType, scale: float, add: bool
    ) -> None: ...


def dense(model: ShardedModel, group: int, index: int, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of one parameter, contiguous and in a dtype that the engine reads."""
    if gradient.layout is not torch.strided or gradient.dtype not in dtypes:
        param = model.groups[group].fsdp_params[index]
        raise OperationError(
            f"the gradient of parameter '{model.parameter_name(param)}' is {gradient.dtype} in "
            f"layout {gradient.layout}: gradients must be dense, in float32 or bfloat16 (for an "
            "embedding, sparse=False)"
        )
    # Some tensors are lazy: what lies at their address is not their value.
    if gradient._is_zerotensor():
        gradient = torch.zeros(gradient.shape, dtype=gradient.dtype)
    return gradient.resolve_neg().contiguous()


@torch.no_grad()
def write_gradients(
    model: ShardedModel, sums: Sums, touched: list[list[bool]], scale: float, zero: bool
) -> None:
    """Sets or adds to `.grad` of every touched parameter, then runs its post-accumulate hooks once,
    in group order. With `zero` the sums are taken as zero whatever they hold.

    Replicas (HSDP) are summed and a group's all-reduce hook, where set, runs once before, over the
    group's touched shards packed as FSDP2 packs them (fp32, scaled, pad rows zero).
    """
    for g, group in enumerate(model.groups):
        indices = [p for p, was_touched in enumerate(touched[g]) if was_touched]
        if not indices:
            continue
        packed: dict[int, torch.Tensor] = {}
        if group._all_reduce_hook is not None or model.replicas is not None:
            packed = _pack(model, sums, g, indices, scale, zero)
        for p in indices:
            param = group.fsdp_params[p]
            if p in packed:
                _accumulate(model, param, packed[p])
            elif zero:
                _accumulate(model, param, torch.zeros(param.sharded_size))
            else:
                _collect(model, sums, g, p, param, scale)
            hooks = getattr(param.sharded_param, "_post_accumulate_grad_hooks", None) or {}
            for hook in list(hooks.values()):
                hook(param.sharded_param)


def _collect(
    model: ShardedModel, sums: Sums, g: int, p: int, param: FSDPParam, scale: float
) -> None:
    present = _local_gradient(model, param)
    if present is None:
        local = torch.empty(param.sharded_size, dtype=param.sharded_param.dtype)
        if local.numel():
            sums.collect(g, p, local.data_ptr(), dtypes[local.dtype], scale, False)
        param.sharded_param.grad = param.to_sharded_dtensor(local)
        return
    if present.numel() == 0:
        return
    if present.is_contiguous() and not present.is_neg() and present.dtype in dtypes:
        sums.collect(g, p, present.data_ptr(), dtypes[present.dtype], scale, True)
        torch.autograd.graph.increment_version(present)
        return
    sum_here = torch.empty(param.sharded_size)
    sums.collect(g, p, sum_here.data_ptr(), dtypes[sum_here.dtype], scale, False)
    present.add_(sum_here)


def _pack(
    model: ShardedModel, sums: Sums, g: int, indices: list[int], scale: float, zero: bool
) -> dict[int, torch.Tensor]:
    group = model.groups[g]
    sizes = [group.fsdp_params[p].padded_sharded_param_size.numel() for p in indices]
    flat = torch.zeros(sum(sizes))
    views = {}
    for p, block in zip(indices, flat.split(sizes), strict=True):
        size = group.fsdp_params[p].sharded_size
        views[p] = block[: size.numel()].view(size)
        if views[p].numel() and not zero:
            sums.collect(g, p, views[p].data_ptr(), dtypes[flat.dtype], scale, False)
    if model.replicas is not None:
        dist.all_reduce(flat, group=model.replicas)
    if group._all_reduce_hook is not None:
        group._all_reduce_hook(flat)
    return views


def _accumulate(model: ShardedModel, param: FSDPParam, value: torch.Tensor) -> None:
    present = _local_gradient(model, param)
    if present is not None:
        present.add_(value)
        return
    local = value.to(param.sharded_param.dtype, copy=True).contiguous()
    param.sharded_param.grad = param.to_sharded_dtensor(local)


def _local_gradient(model: ShardedModel, param: FSDPParam) -> torch.Tensor | None:
    grad = param.sharded_param.grad
    if grad is None:
        return None
    if not isinstance(grad, DTensor):
        raise OperationError(
            f"the gradient of parameter '{model.parameter_name(param)}' was replaced by a "
            f"{type(grad).__name__}: keep FSDP2's DTensor, or set it to None before the minibatch "
            "ends"
        )
    if grad.placements != param.sharded_param.placements:
        raise OperationError(
            f"the gradient of parameter '{model.parameter_name(param)}' was replaced by one placed "
            f"as {grad.placements}: place it as the parameter, or "
            "set it to None before the minibatch ends"
        )
    return grad._local_tensor
