"""After a minibatch every rank's gradients equal what one process gets from the whole minibatch."""

from typing import Any

import headrace
import pytest
import torch
import torch.nn as nn
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    samples,
    shard,
    shard_in_bfloat16,
    tokens_of,
)
from support.ranks import RankPools
from torch.distributed.fsdp import fully_shard

with_worker_threads = True

# Which rank trains which of 12 samples, by name: the result may not depend on it.
splits = {
    "even": lambda world: [list(range(rank, 12, world)) for rank in range(world)],
    "all on the last rank": lambda world: [[] for _ in range(world - 1)] + [list(range(12))],
    "every count different": lambda world: [
        [i for i in range(12) if min(i * (i + 1) // 24, world - 1) == rank] for rank in range(world)
    ],
}


def step_with_tokens(rank: int, world: int, split: str) -> float:
    data = samples(12)
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=tokens_of(data)):
        for i in splits[split](world)[rank]:
            engine.backward(loss_sum(model, data[i]))
    assert_same_gradients(full_gradients(model), reference(decoder(), data, tokens_of(data)))
    loss = engine.report.loss
    assert engine.report.tokens == tokens_of(data)
    engine.detach()
    return loss


@pytest.mark.parametrize("split", splits)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_any_split_gives_the_gradient_and_loss_of_one_process(
    pools: RankPools, world: int, split: str
) -> None:
    losses = pools.run(world, step_with_tokens, split)
    data = samples(12)
    model = decoder().double()
    expected = sum(loss_sum(model, ids).item() for ids in data) / tokens_of(data)
    assert losses == [losses[0]] * world
    assert losses[0] == pytest.approx(expected, rel=1e-5)


def test_eight_ranks(pools: RankPools) -> None:
    pools.run(8, step_with_tokens, "every count different", limit=90)


def step_with_own_counts(rank: int, world: int, unit: str) -> None:
    data = samples(7)
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch():
        for i in range(rank, 7, world):
            if world > 1 and rank == world - 1:
                break  # this rank trains nothing; rank 0 takes its samples below
            count = {unit: tokens_of([data[i]]) if unit == "tokens" else 1}
            engine.backward(loss_sum(model, data[i]), **count)
        if world > 1 and rank == 0:
            for i in range(world - 1, 7, world):
                count = {unit: tokens_of([data[i]]) if unit == "tokens" else 1}
                engine.backward(loss_sum(model, data[i]), **count)
    divisor = tokens_of(data) if unit == "tokens" else 7
    assert_same_gradients(full_gradients(model), reference(decoder(), data, divisor))
    assert getattr(engine.report, unit) == divisor
    engine.detach()


@pytest.mark.parametrize("unit", ["tokens", "samples"])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_counts_told_with_each_backward_are_summed_at_settle(
    pools: RankPools, world: int, unit: str
) -> None:
    pools.run(world, step_with_own_counts, unit)


def step_with_sample_mean(rank: int, world: int) -> None:
    data = samples(5)
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(samples=5):
        for i in range(rank, 5, world):
            engine.backward(loss_sum(model, data[i]) / tokens_of([data[i]]))

    def mean(module: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        return loss_sum(module, ids) / tokens_of([ids])

    assert_same_gradients(full_gradients(model), reference(decoder(), data, 5, mean))
    assert engine.report.samples == 5 and engine.report.tokens is None
    engine.detach()


def test_sample_mean(pools: RankPools) -> None:
    pools.run(2, step_with_sample_mean)


def step_of_unchanged_script(rank: int, world: int) -> None:
    """The loop owns loss.backward(): stock FSDP2 first, then attached, on the same data."""
    data = samples(6)
    stock = shard(decoder())
    for i in range(rank, 6, world):  # equal counts, or stock FSDP2 would hang
        (loss_sum(stock, data[i]) / 3).backward()
    expected = full_gradients(stock)
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch():
        for i in range(rank, 6, world):
            (loss_sum(model, data[i]) / 3).backward()
    assert_same_gradients(full_gradients(model), expected)
    assert engine.report.loss is None
    engine.detach()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_attaching_changes_no_gradient_of_a_script_that_owns_its_backward(
    pools: RankPools, world: int
) -> None:
    pools.run(world, step_of_unchanged_script)


class Tiny(nn.Module):
    """Parameters with fewer rows than ranks, one of 6 x 1, one of one element."""

    def __init__(self) -> None:
        super().__init__()
        self.column = nn.Parameter(torch.randn(6, 1))
        self.row = nn.Parameter(torch.randn(1, 5))
        self.one = nn.Parameter(torch.randn(1))
        self.cube = nn.Parameter(torch.randn(3, 2, 5))
        self.line = nn.Parameter(torch.randn(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (self.column @ self.row * self.one).sum(0) * x
        return (self.cube * y).sum() + self.line.square().sum() * x.sum()


def tiny(seed: int = 0) -> Tiny:
    torch.manual_seed(seed)
    return Tiny()


def step_of_tiny_parameters(rank: int, world: int) -> None:
    inputs = torch.randn(world + 1, 5, generator=torch.Generator().manual_seed(3))
    model = fully_shard(tiny())
    engine = headrace.attach(model)
    for repeat in range(2):  # the second adds to the first
        with engine.minibatch(samples=len(inputs)):
            for i in range(rank, len(inputs), world):
                engine.backward(model(inputs[i]))
        expected = reference(
            tiny(), list(inputs.double()) * (repeat + 1), len(inputs), lambda m, x: m(x)
        )
        assert_same_gradients(full_gradients(model), expected)
    for param in model.parameters():
        assert param.grad.shape == param.shape
        assert param.grad.placements == param.placements
        assert param.grad.to_local().shape == param.to_local().shape
    engine.detach()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_parameters_with_fewer_rows_than_ranks_and_odd_rows(pools: RankPools, world: int) -> None:
    pools.run(world, step_of_tiny_parameters)


def forward_bits(rank: int, world: int) -> None:
    """The gathered parameters are the bits that were sharded."""
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.evaluation():
        model.unshard()
        for (name, got), (_, want) in zip(
            model.named_parameters(), decoder().named_parameters(), strict=True
        ):
            if not name.startswith("blocks"):
                assert torch.equal(got.detach(), want.detach()), name
    engine.detach()


@pytest.mark.parametrize("world", [1, 3])
def test_gathers_are_bit_exact(pools: RankPools, world: int) -> None:
    pools.run(world, forward_bits)


def step_in_bfloat16(rank: int, world: int, reduce_dtype: torch.dtype | None) -> None:
    """Stock FSDP2 that reduces in float32 adds the same bfloat16 gradients as we do, in float32."""
    data = samples(8)
    stock = shard_in_bfloat16(decoder(), torch.float32)
    for i in range(rank, 8, world):
        loss_sum(stock, data[i]).backward()
    expected = full_gradients(stock)
    model = shard_in_bfloat16(decoder(), reduce_dtype)
    engine = headrace.attach(model)
    with engine.minibatch():
        for i in range(rank, 8, world):
            loss_sum(model, data[i]).backward()
    for param in model.parameters():
        assert param.dtype == param.grad.dtype == torch.float32
    assert_same_gradients(full_gradients(model), expected)
    engine.detach()


@pytest.mark.parametrize("reduce_dtype", [None, torch.float32, torch.bfloat16])
def test_bfloat16_gradients_are_added_in_float32_whatever_reduce_dtype_says(
    pools: RankPools, reduce_dtype: torch.dtype | None
) -> None:
    pools.run(2, step_in_bfloat16, reduce_dtype)


def step_of_bfloat16_model(rank: int, world: int) -> None:
    data = samples(4)
    model = shard(decoder().bfloat16())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=tokens_of(data)):
        for i in range(rank, 4, world):
            engine.backward(loss_sum(model, data[i]))
    assert {param.grad.dtype for param in model.parameters()} == {torch.bfloat16}
    exact = reference(decoder().bfloat16(), data, tokens_of(data))
    assert_same_gradients(full_gradients(model), exact, relative=0.04)
    engine.detach()


def test_a_model_stored_in_bfloat16(pools: RankPools) -> None:
    pools.run(2, step_of_bfloat16_model)


def many_minibatches(rank: int, world: int) -> list[float]:
    """Trains 12 steps with changing counts, zero included, and returns this rank's view of the
    losses."""
    model = shard(decoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine = headrace.attach(model)
    losses = []
    for step in range(12):
        data = samples(5, seed=step)
        with engine.minibatch(tokens=tokens_of(data)):
            for i in range(5):
                if (i * step) % world == rank:
                    engine.backward(loss_sum(model, data[i]))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(engine.report.loss)
    engine.detach()
    return losses


def test_training_follows_one_process_step_for_step(pools: RankPools) -> None:
    results = pools.run(3, many_minibatches)
    model = decoder().double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    expected = []
    for step in range(12):
        data = samples(5, seed=step)
        loss = sum(loss_sum(model, ids) for ids in data) / tokens_of(data)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert results[0] == results[1] == results[2]
    assert results[0][0] == pytest.approx(expected[0], rel=1e-5)
    assert results[0] == pytest.approx(expected, rel=1e-4)


class Lazy(torch.autograd.Function):
    """A sum whose gradient's value is not what lies at its address."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, kind: str) -> torch.Tensor:
        ctx.shape, ctx.kind = weight.shape, kind
        return weight.sum()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        if ctx.kind == "zero":
            return torch._efficientzerotensor(ctx.shape), None
        if ctx.kind == "negative":
            return torch._neg_view(grad * torch.ones(ctx.shape)), None
        return grad.expand(ctx.shape), None


class Summed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5, 3))

    def forward(self, kind: str) -> torch.Tensor:
        return Lazy.apply(self.weight, kind)


def lazy_gradients(rank: int, world: int) -> None:
    model = fully_shard(Summed())
    engine = headrace.attach(model)
    for kind, value in (("zero", 0.0), ("negative", -1.0), ("expanded", 1.0)):
        model.zero_grad()
        with engine.minibatch(samples=world):
            engine.backward(model(kind))
        assert torch.equal(model.weight.grad.full_tensor(), torch.full((5, 3), value)), kind
    engine.detach()


def test_lazy_gradients_travel_by_value(pools: RankPools) -> None:
    pools.run(2, lazy_gradients)
