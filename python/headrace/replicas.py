"""What the replicas of HSDP add to one shard mesh's settlement."""

from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist

_flag_bits = 8


class Settlement(Protocol):
    """What one shard mesh's minibatch came to; see the engine's."""

    loss_sum: float
    weight: float
    flags: int
    touched: list[list[bool]]


class Totals(NamedTuple):
    loss_sum: float
    weight: float
    flags: int
    touched: list[list[bool]]


def over_replicas(replicas: dist.ProcessGroup | None, mine: Settlement) -> Totals:
    """Sums of losses and weights, unions of flags and touched parameters, the same on every
    rank."""
    if replicas is None:
        return Totals(mine.loss_sum, mine.weight, mine.flags, mine.touched)
    sums = torch.tensor([mine.loss_sum, mine.weight], dtype=torch.float64)
    dist.all_reduce(sums, group=replicas)
    bits = [mine.flags >> bit & 1 for bit in range(_flag_bits)]
    bits += [int(touched) for group in mine.touched for touched in group]
    union = torch.tensor(bits, dtype=torch.int32)
    dist.all_reduce(union, dist.ReduceOp.MAX, group=replicas)
    flags = sum(value << bit for bit, value in enumerate(union[:_flag_bits].tolist()))
    rest = iter(union[_flag_bits:].tolist())
    touched = [[bool(next(rest)) for _ in group] for group in mine.touched]
    return Totals(float(sums[0]), float(sums[1]), flags, touched)
