"""Models in lockstep: the loop of a user who has never heard of headrace, and what it leaves."""

from typing import Any

import torch
import torch.nn as nn

from support.models import (
    decoder,
    loss_sum,
    samples,
    shard,
    shard_in_bfloat16,
)

data = samples(80)


def full_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.detach().full_tensor().clone() for n, p in model.named_parameters()}


def train(model: nn.Module, rank: int, world: int, steps: int = 20) -> nn.Module:
    """The loop of a user who has never heard of headrace."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        loss_sum(model, data[(step * world + rank) % len(data)]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[n].double() - b[n].double()).abs().max()) for n in a)


def make(kind: str, **options: Any) -> nn.Module:
    if kind == "bf16":
        return shard_in_bfloat16(decoder(), torch.float32)
    if kind == "bf16 stored":
        return shard(decoder().to(torch.bfloat16), **options)
    return shard(decoder(), **options)


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


class Loop:
    """An unchanged loop."""

    def __init__(self, model: nn.Module, rank: int, world: int) -> None:
        self.model, self.rank, self.world = model, rank, world
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.number = 0

    def microbatch(self) -> None:
        loss_sum(self.model, data[(self.number * self.world + self.rank) % len(data)]).backward()
        self.number += 1

    def end_step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.microbatch()
            self.end_step()
