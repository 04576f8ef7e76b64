"""Lockstep mode: an unchanged FSDP2 loop gets the same parameters as with stock collectives."""

import copy
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from headrace.errors import OperationError
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
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy

data = samples(80)
total = tokens_of(data)


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


# -- an unchanged loop


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


# -- brackets


def bracket(rank: int, world: int) -> None:
    model = make("fp32")
    engine = headrace.attach(model, mode="lockstep")
    mine = [data[2 * rank], data[2 * rank + 1]]
    count = tokens_of(data[: 2 * world])
    with engine.minibatch(tokens=count):
        for ids in mine:
            engine.backward(loss_sum(model, ids))
    assert_same_gradients(full_gradients(model), reference(decoder(), data[: 2 * world], count))
    plain = decoder()
    with torch.no_grad():
        expected = sum(float(loss_sum(plain, ids)) for ids in data[: 2 * world]) / count
    assert abs(engine.report.loss - expected) < 1e-5 * expected
    with pytest.raises(OperationError, match="global count"), engine.minibatch():
        engine.backward(loss_sum(model, mine[0]), tokens=3)
    engine.detach()


def test_a_bracket_makes_the_token_weighted_mean(pools: RankPools) -> None:
    pools.run(2, bracket)


def no_valid_token(rank: int, world: int) -> None:
    model = make("fp32")
    engine = headrace.attach(model, mode="lockstep")
    with engine.minibatch(tokens=0):
        engine.backward(loss_sum(model, data[rank]) * float("nan"))
    assert engine.report.flagged and engine.report.loss == 0
    assert all(bool((g == 0).all()) for g in full_gradients(model).values())
    engine.detach()


def test_a_minibatch_without_valid_tokens_has_zero_gradients(pools: RankPools) -> None:
    pools.run(2, no_valid_token)


def alternate(rank: int, world: int) -> None:
    """Both ways in one run, in the same landings, against one process."""
    model = make("fp32")
    engine = headrace.attach(model, mode="auto")
    landings: dict[int, int] = {}
    for step, mode in enumerate(["on-demand", "lockstep", "on-demand", "lockstep", "lockstep"]):
        batch = data[step * 3 * world : (step + 1) * 3 * world]
        mine = batch[rank::world]
        if mode == "on-demand":  # unequal counts
            mine = batch[: len(batch) - 1] if rank == 0 else batch[len(batch) - 1 :]
        count = tokens_of(batch)
        with engine.minibatch(tokens=count, mode=mode):
            for ids in mine if world > 1 else batch:
                engine.backward(loss_sum(model, ids))
            for i, block in enumerate(model.blocks):
                param = block._get_fsdp_state()._fsdp_param_group.fsdp_params[0]
                storage = id(param.all_gather_outputs[0])
                assert landings.setdefault(i, storage) == storage
        assert_same_gradients(full_gradients(model), reference(decoder(), batch, count))
        model.zero_grad()
    engine.detach()


def test_both_modes_alternate_in_one_run(pools: RankPools) -> None:
    pools.run(2, alternate)


def auto_rule(rank: int, world: int) -> None:
    model = make("fp32")
    engine = headrace.attach(model, mode="auto")
    lengths = [ids.numel() for ids in data[:4]]
    balanced = headrace.data.plan([5, 5, 5, 5], 2, 10, "lb-micro")
    assert balanced.equal_counts and balanced.recommendation == "lockstep"
    with engine.minibatch(plan=balanced):
        loss_sum(model, data[rank]).backward()
    assert engine.report.mode == "lockstep"
    with engine.minibatch(plan=headrace.data.plan(lengths, 2, 64, "lb-mini")):
        loss_sum(model, data[rank]).backward()
    with engine.minibatch():
        loss_sum(model, data[rank]).backward()
    assert engine.report.mode == "on-demand"
    loss_sum(model, data[rank]).backward()  # no bracket: lockstep
    engine.detach()


def test_auto_follows_the_plan(pools: RankPools) -> None:
    pools.run(2, auto_rule)


def modes_differ(rank: int, world: int) -> str:
    engine = headrace.attach(make("fp32"), mode="auto", no_progress_seconds=20)
    try:
        with engine.minibatch(mode="lockstep" if rank else "on-demand"):
            pass
    except headrace.errors.HeadraceError as error:
        return str(error)
    finally:
        engine.detach()
    return ""


def test_ranks_that_choose_different_modes_are_told(pools: RankPools) -> None:
    messages = pools.run(2, modes_differ)
    assert any("lockstep" in message for message in messages)


def calls_differ(rank: int, world: int) -> str:
    model = make("fp32")
    engine = headrace.attach(model, mode="lockstep", no_progress_seconds=20)
    try:
        model.blocks[rank].unshard()
    except headrace.errors.HeadraceError as error:
        return str(error)
    finally:
        engine.detach()
    return ""


def test_ranks_that_call_different_groups_are_told(pools: RankPools) -> None:
    messages = pools.run(2, calls_differ)
    assert any("blocks.0" in message and "blocks.1" in message for message in messages)


# -- HSDP


def hsdp(rank: int, world: int, mode: str) -> None:
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    model = make("fp32", mesh=mesh)
    engine = headrace.attach(model, mode=mode)
    count = tokens_of(data[: 2 * world])
    for _ in range(2):
        with engine.minibatch(tokens=count):
            for ids in data[2 * rank : 2 * rank + 2]:
                engine.backward(loss_sum(model, ids))
        assert_same_gradients(full_gradients(model), reference(decoder(), data[: 2 * world], count))
        model.zero_grad()
    with engine.minibatch():
        loss_sum(model, data[rank]).backward()
    assert_same_gradients(full_gradients(model), reference(decoder(), data[:world], world))
    assert engine.report.loss is None
    engine.detach()


@pytest.mark.parametrize("mode", ["lockstep", "on-demand"])
def test_hsdp_sums_over_shards_and_replicas(pools: RankPools, mode: str) -> None:
    pools.run(4, hsdp, mode)


def hsdp_partial(rank: int, world: int) -> None:
    """set_requires_all_reduce(False) keeps partial sums, as with stock."""

    def steps(model: nn.Module) -> dict[str, torch.Tensor | None]:
        for i in range(2):
            model.set_requires_all_reduce(i == 1)
            loss_sum(model, data[i * world + rank]).backward()
        return full_gradients(model)

    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    stock = steps(make("fp32", mesh=mesh))
    model = make("fp32", mesh=mesh)
    engine = headrace.attach(model, mode="lockstep")
    ours = steps(model)
    engine.detach()
    for name, gradient in stock.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-5, atol=1e-6)


def test_hsdp_keeps_partial_sums_between_reductions(pools: RankPools) -> None:
    pools.run(4, hsdp_partial)


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


# -- state


def averaged_weights(rank: int, world: int) -> None:
    """An exponential moving average kept as a deepcopy of the state dict, swapped in and out."""

    def run(mode: str | None) -> dict[str, torch.Tensor]:
        model = make("fp32")
        engine = headrace.attach(model, mode=mode) if mode else None
        average = copy.deepcopy(get_model_state_dict(model))
        for _ in range(3):
            train(model, rank, world, 2)
            with torch.no_grad():
                for name, value in get_model_state_dict(model).items():
                    average[name].lerp_(value, 0.5)
            kept = copy.deepcopy(get_model_state_dict(model))
            model.load_state_dict(average)
            with torch.no_grad():
                loss_sum(model, data[0])
            model.load_state_dict(kept)
        result = {n: v.full_tensor().clone() for n, v in average.items()}
        if engine:
            engine.detach()
        return result

    assert largest_difference(run(None), run("lockstep")) == 0.0


def test_averaged_weights(pools: RankPools) -> None:
    pools.run(2, averaged_weights)


def checkpointed(rank: int, world: int, folder: str, asynchronous: bool) -> None:
    def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        weights, optim = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": optim}

    def part(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for step in range(first, last):
            loss_sum(model, data[step * world + rank]).backward()
            optimizer.step()
            optimizer.zero_grad()

    unbroken = make("fp32")
    optimizer = torch.optim.AdamW(unbroken.parameters(), lr=1e-2)
    engine = headrace.attach(unbroken, mode="lockstep")
    part(unbroken, optimizer, 0, 3)
    if asynchronous:
        saving = dcp.async_save(state(unbroken, optimizer), checkpoint_id=folder)
        part(unbroken, optimizer, 3, 6)  # while it is being written
        saving.result()
    else:
        dcp.save(state(unbroken, optimizer), checkpoint_id=folder)
        part(unbroken, optimizer, 3, 6)
    expected = full_parameters(unbroken)
    engine.detach()

    resumed = shard(decoder(seed=9))
    optimizer = torch.optim.AdamW(resumed.parameters(), lr=1e-2)
    engine = headrace.attach(resumed, mode="lockstep")
    loaded = state(resumed, optimizer)
    dcp.load(loaded, checkpoint_id=folder)
    set_state_dict(
        resumed, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"]
    )
    part(resumed, optimizer, 3, 6)
    assert largest_difference(expected, full_parameters(resumed)) == 0.0
    engine.detach()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_checkpoint_and_resume(pools: RankPools, tmp_path: Path, asynchronous: bool) -> None:
    pools.run(2, checkpointed, str(tmp_path / "checkpoint"), asynchronous)


def shards_after_detach(rank: int, world: int) -> None:
    model = make("fp32")
    engine = headrace.attach(model, mode="lockstep")
    addresses = [p._local_tensor.data_ptr() for p in model.parameters() if p._local_tensor.numel()]
    assert all(p._local_tensor.storage_offset() == 0 for p in model.parameters())
    train(model, rank, world, 2)
    assert addresses == [
        p._local_tensor.data_ptr() for p in model.parameters() if p._local_tensor.numel()
    ]
    before = full_parameters(model)
    engine.detach()
    del engine
    for param in model.parameters():
        assert param._local_tensor.data_ptr() not in addresses
    assert largest_difference(before, full_parameters(model)) == 0.0
    train(model, rank, world, 1)  # stock


def test_shards_live_in_the_arena_until_detach(pools: RankPools) -> None:
    pools.run(2, shards_after_detach)


def settings_refused(rank: int, world: int) -> list[str]:
    messages = []
    wrong: list[dict[str, Any]] = [
        {"mode": "lock-step"},
        {"mode": "lockstep", "residence": "in place"},
        {"mode": "lockstep", "local_ranks": 3},
    ]
    for settings in wrong:
        with pytest.raises(OperationError) as caught:
            headrace.attach(make("fp32"), **settings)
        messages.append(str(caught.value))
    return messages


def test_wrong_settings_are_named(pools: RankPools) -> None:
    for messages in pools.run(2, settings_refused):
        assert "'lock-step'" in messages[0] and "'auto'" in messages[0]
        assert "'in place'" in messages[1]
        assert "3" in messages[2]
