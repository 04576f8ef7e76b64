"""Shards that live in the engine's arena, where peers read them without any copy.

Each adopted shard is a tensor of its own storage at offset 0, so that state dicts, `deepcopy` and
checkpoints see an ordinary tensor. The memory stays mapped for as long as such a tensor lives, in
this process; a forked child must not touch it.
"""

from collections.abc import Sequence

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam


def same_dtype(param: FSDPParam) -> bool:
    """Whether the shard is stored as it is gathered."""
    return (param.param_dtype or param.orig_dtype) == param.sharded_param.dtype


class Residence:
    """One group's blocks in the arena, padded, one a parameter."""

    def __init__(self, params: Sequence[FSDPParam], blocks: Sequence[torch.Tensor]) -> None:
        self._params = params
        self._blocks = blocks

    def adopt(self) -> None:
        """Moves in every shard that is not there: at attach, and again where FSDP2 or the loop has
        replaced one since."""
        for param, block in zip(self._params, self._blocks, strict=True):
            if param._sharded_param_data.data_ptr() != block.data_ptr() and block.numel():
                _place(param, block)

    def leave(self) -> None:
        """Gives every shard ordinary memory again."""
        for param, block in zip(self._params, self._blocks, strict=True):
            if param._sharded_param_data.data_ptr() == block.data_ptr() and block.numel():
                _place(param, torch.empty_like(block))


def _place(param: FSDPParam, block: torch.Tensor) -> None:
    """What FSDP2's own reset_sharded_param does when a shard has moved."""
    with torch.no_grad():
        block.copy_(param._sharded_param_data)
    param._sharded_param_data = block
    size = param.sharded_size
    param.sharded_param._local_tensor = block[: size.numel()].view(size)
