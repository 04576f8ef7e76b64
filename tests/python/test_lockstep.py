"""Lockstep mode: an unchanged FSDP2 loop gets the same parameters as with stock collectives."""

from typing import Any

import headrace
import pytest
import torch
import torch.nn as nn
from support.lockstep import data, full_parameters, largest_difference, make, train
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    tokens_of,
)
from support.ranks import RankPools
from torch.distributed.fsdp import MixedPrecisionPolicy

with_worker_threads = True


def unchanged_loop(rank: int, world: int, kind: str, settings: dict[str, Any]) -> float:
    stock = full_parameters(train(make(kind), rank, world))
    model = make(kind)
    engine = headrace.attach(model, mode="lockstep", **settings)
    ours = full_parameters(train(model, rank, world))
    engine.detach()
    assert largest_difference(ours, full_parameters(train(make(kind), rank, world, 0))) > 1e-3
    return largest_difference(stock, ours)


@pytest.mark.parametrize("residence", ["in-place", "slot-reuse"])
def test_two_ranks_in_fp32_get_the_same_bits_as_stock(pools: RankPools, residence: str) -> None:
    # Two summands have one order.
    assert pools.run(2, unchanged_loop, "fp32", {"residence": residence}) == [0.0, 0.0]


@pytest.mark.parametrize("world", [1, 3, 4, 8])
def test_more_ranks_differ_from_stock_by_rounding(pools: RankPools, world: int) -> None:
    assert max(pools.run(world, unchanged_loop, "fp32", {})) < 1e-4


@pytest.mark.parametrize("nodes", [2, 4])
def test_several_nodes_differ_from_stock_by_rounding(pools: RankPools, nodes: int) -> None:
    assert max(pools.run(4, unchanged_loop, "fp32", {"local_ranks": 4 // nodes})) < 1e-4


@pytest.mark.parametrize("residence", ["in-place", "slot-reuse"])
@pytest.mark.parametrize("kind", ["bf16", "bf16 stored"])
def test_bfloat16_differs_from_stock_by_rounding(
    pools: RankPools, kind: str, residence: str
) -> None:
    # Adam's step is a tenth of lr in size however small the gradient; bf16 storage rounds it.
    limit = 2e-2 if kind == "bf16" else 0.1
    assert max(pools.run(2, unchanged_loop, kind, {"residence": residence})) < limit


def residences_agree(rank: int, world: int, kind: str) -> None:
    runs = []
    for residence in ("in-place", "slot-reuse"):
        model = make(kind)
        engine = headrace.attach(model, mode="lockstep", residence=residence)
        runs.append(full_parameters(train(model, rank, world, 6)))
        engine.detach()
    assert largest_difference(*runs) == 0.0


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_where_gradients_lie_changes_no_bit(pools: RankPools, kind: str) -> None:
    pools.run(4, residences_agree, kind)


def with_options(rank: int, world: int, options: dict[str, Any]) -> float:
    runs = []
    for mode in (None, "lockstep"):
        model = make("fp32", **options)
        engine = headrace.attach(model, mode=mode) if mode else None
        runs.append(full_parameters(train(model, rank, world, 5)))
        if engine:
            engine.detach()
    return largest_difference(*runs)


@pytest.mark.parametrize("reshard", [True, False, 2])
def test_every_way_to_reshard(pools: RankPools, reshard: bool | int) -> None:
    assert max(pools.run(4, with_options, {"reshard_after_forward": reshard})) < 1e-5


def accumulating(rank: int, world: int, sync_each: bool) -> None:
    def steps(model: nn.Module) -> dict[str, torch.Tensor | None]:
        for i in range(3):
            model.set_requires_gradient_sync(sync_each or i == 2)
            loss_sum(model, data[i * world + rank]).backward()
        return full_gradients(model)

    stock = steps(make("fp32"))
    model = make("fp32")
    engine = headrace.attach(model, mode="lockstep")
    ours = steps(model)
    engine.detach()
    for name, gradient in stock.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sync_each", [True, False])
def test_gradient_accumulation(pools: RankPools, sync_each: bool) -> None:
    pools.run(2, accumulating, sync_each)


def divide_factor(rank: int, world: int) -> None:
    model = make("fp32")
    for module in (*model.blocks, model):
        module.set_gradient_divide_factor(5.0)
    engine = headrace.attach(model, mode="lockstep")
    loss_sum(model, data[rank]).backward()
    ours = full_gradients(model)
    engine.detach()
    assert_same_gradients(ours, reference(decoder(), data[:world], 5.0))


def test_a_divide_factor_set_by_the_user_is_honoured(pools: RankPools) -> None:
    pools.run(2, divide_factor)


def async_unshard(rank: int, world: int) -> None:
    model = make("fp32")
    engine = headrace.attach(model, mode="lockstep")
    handle = model.blocks[1].unshard(async_op=True)
    handle.wait()
    weight = model.blocks[1].up.weight
    torch.testing.assert_close(weight.detach(), decoder().blocks[1].up.weight)
    model.blocks[1].reshard()
    engine.detach()


def test_asynchronous_unshard_gives_the_whole_parameter(pools: RankPools) -> None:
    pools.run(2, async_unshard)


# -- groups that stock collectives carry


def fallback(rank: int, world: int) -> list[str]:
    import warnings

    from torch.distributed.fsdp import fully_shard

    model = decoder()
    half = MixedPrecisionPolicy(torch.float16, torch.float32, output_dtype=torch.float32)
    fully_shard(model.blocks[1], mp_policy=half)  # no dtype that headrace carries
    shard_rest = [model.blocks[0], model.blocks[2], model]
    for module in shard_rest:
        fully_shard(module)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine = headrace.attach(model, mode="lockstep")
    count = tokens_of(data[:world])
    with engine.minibatch(tokens=count):
        engine.backward(loss_sum(model, data[rank]))
    in_bracket = full_gradients(model)
    model.zero_grad()
    loss_sum(model, data[rank]).backward()
    outside = full_gradients(model)
    engine.detach()
    for gradients, divisor in ((in_bracket, count), (outside, world)):
        for name, expected in reference(decoder(), data[:world], divisor).items():
            limit = 1e-2 if "blocks.1" in name else 1e-3
            error = float((gradients[name].double() - expected).norm() / expected.norm())
            assert error < limit, (name, error)
    return [str(w.message) for w in caught if "stock collectives" in str(w.message)]


def test_unsupported_groups_fall_back_with_one_message(pools: RankPools) -> None:
    first, second = pools.run(2, fallback)
    assert len(first) == 1 and "blocks.1" in first[0] and "float16" in first[0]
    assert second == []
