"""Brackets in lockstep, brackets that go one of the two ways, and what differing ranks are told."""

from typing import Any

import headrace
import pytest
import torch
from headrace.errors import OperationError
from support.lockstep import data, make
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    tokens_of,
)
from support.ranks import RankPools


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
    engine = headrace.attach(make("fp32"), mode="auto", no_progress_seconds=60)
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
    engine = headrace.attach(model, mode="lockstep", no_progress_seconds=60)
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
