"""What a bracket promises on entering and leaving, and what it refuses."""

import headrace
import pytest
import torch
from headrace.errors import OperationError
from support.brackets import assert_still_right, caught, data, total
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    shard,
    unsharded_groups,
)
from support.ranks import RankPools

with_worker_threads = True


# -- outside and nested


def outside(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    with pytest.raises(OperationError, match=r"group 'root' .* outside a bracket.*minibatch"):
        model(data[0][None])
    with pytest.raises(OperationError, match=r"group 'blocks.1' .* outside a bracket"):
        model.blocks[1].unshard()
    with pytest.raises(OperationError, match="inside `with engine.minibatch"):
        engine.backward(torch.zeros(1, requires_grad=True))
    with engine.evaluation():
        loss = loss_sum(model, data[0])
    with pytest.raises(OperationError, match="outside a bracket"):
        loss.backward()
    assert_still_right(engine, model, rank, world)  # none of it left a trace
    engine.detach()
    with pytest.raises(OperationError, match="detached"), engine.minibatch():
        pass


@pytest.mark.parametrize("world", [1, 2])
def test_a_gather_outside_a_bracket_is_refused_and_leaves_no_trace(
    pools: RankPools, world: int
) -> None:
    pools.run(world, outside)


def nested(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=total):
        with (
            pytest.raises(OperationError, match="evaluation.* inside .*minibatch.*leave that"),
            engine.evaluation(),
        ):
            pass
        with pytest.raises(OperationError, match="detach inside a bracket"):
            engine.detach()
        for ids in data[rank::world]:  # the outer bracket goes on
            engine.backward(loss_sum(model, ids))
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()


def test_brackets_of_one_engine_do_not_nest(pools: RankPools) -> None:
    pools.run(2, nested)


def backward_in_evaluation(rank: int, world: int) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)

    def evaluate() -> None:
        with engine.evaluation():
            loss_sum(model, data[0]).backward()

    found = caught(evaluate)
    engine.detach()
    return found


def test_backward_inside_an_evaluation_is_refused(pools: RankPools) -> None:
    found = pools.run(1, backward_in_evaluation)[0]
    assert found[0] == "OperationError" and "engine.minibatch()" in found[1]


def graph_outlives_bracket(rank: int, world: int) -> str:
    """Its activations belong to other parameters by then."""
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=total):
        loss = loss_sum(model, data[0])
    with torch.no_grad():
        for param in model.parameters():
            param.add_(1)

    def late() -> None:
        with engine.minibatch(tokens=total):
            engine.backward(loss)

    found = caught(late)
    engine.detach()
    return found[0]


def test_a_graph_of_an_earlier_bracket_cannot_run_backward(pools: RankPools) -> None:
    assert pools.run(1, graph_outlives_bracket) == ["RuntimeError"]


# -- leaving


def everything_is_sharded_after(rank: int, world: int, reshard: bool | None) -> None:
    model = shard(decoder(), reshard_after_forward=reshard)
    engine = headrace.attach(model)
    for grad in (True, False):
        with engine.evaluation(), torch.set_grad_enabled(grad):
            model(data[0][None])
        assert unsharded_groups(model) == []
    with engine.minibatch(tokens=total):
        loss_sum(model, data[0])  # a forward without its backward
    assert unsharded_groups(model) == []
    context = model._get_fsdp_state()._comm_ctx
    assert context.post_forward_order == []
    assert model._get_fsdp_state()._state_ctx.iter_forward_root is None
    assert all(param.grad is None for param in model.parameters())
    assert_still_right(engine, model, rank, world)
    engine.detach()


@pytest.mark.parametrize("reshard", [None, True, False])
def test_leaving_a_bracket_reshards_every_group(pools: RankPools, reshard: bool | None) -> None:
    pools.run(2, everything_is_sharded_after, reshard)


def evaluation_counts(rank: int, world: int) -> None:
    """Rank r evaluates r batches, then parameters change: an idle rank must not keep old ones."""
    model = shard(decoder())
    engine = headrace.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    plain = decoder()
    other = torch.optim.SGD(plain.parameters(), lr=0.5)
    for turn in range(3):
        with engine.evaluation(), torch.no_grad():
            for ids in data[: (rank + turn) % world]:
                torch.testing.assert_close(model(ids[None]), plain(ids[None]))
        with engine.minibatch(tokens=total):
            if rank == 0:
                for ids in data:
                    engine.backward(loss_sum(model, ids))
        optimizer.step()
        optimizer.zero_grad()
        (sum(loss_sum(plain, ids) for ids in data) / total).backward()
        other.step()
        other.zero_grad()
    assert engine.report.loss is not None
    engine.detach()


def test_ranks_evaluate_different_numbers_of_batches(pools: RankPools) -> None:
    pools.run(3, evaluation_counts)


def leftover_gradient(rank: int, world: int) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)

    def minibatch() -> None:
        with engine.minibatch(tokens=total):
            model.set_requires_gradient_sync(False)
            engine.backward(loss_sum(model, data[0]))

    found = caught(minibatch)
    engine.detach()
    model.set_requires_gradient_sync(True)
    engine = headrace.attach(model)  # the failed minibatch's gradients are gone
    assert_still_right(engine, model, rank, world)
    engine.detach()
    return found


def test_an_unsharded_gradient_left_over_says_what_to_do(pools: RankPools) -> None:
    for kind, text, _ in pools.run(2, leftover_gradient):
        assert kind in ("OperationError", "PeerError")
        assert "set_requires_gradient_sync(True)" in text


def change_inside(rank: int, world: int, how: str) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def change() -> None:
        if how == "write":
            with torch.no_grad():
                next(model.parameters()).add_(1.0)
            return
        if how == "step with gradients":
            for param in model.parameters():
                param.grad = torch.ones_like(param)
        optimizer.step()

    def minibatch() -> None:
        with engine.minibatch(tokens=total):
            engine.backward(loss_sum(model, data[0]))
            if rank == 1:
                change()

    found = caught(minibatch)
    engine.detach()
    return found


# A step without gradients changes nothing: a loop would train nothing, and nobody would know.
@pytest.mark.parametrize("how", ["step with gradients", "step without gradients", "write"])
def test_a_change_inside_a_bracket_names_the_parameter(pools: RankPools, how: str) -> None:
    theirs, own = pools.run(2, change_inside, how)
    assert own[0] == "OperationError"
    assert "parameter 'scale'" in own[1] and "optimizer.step()" in own[1]
    assert theirs[0] == "PeerError" and theirs[2] == 1 and "optimizer.step()" in theirs[1]


def test_steps_outside_a_bracket_and_of_other_models_inside_go_on(pools: RankPools) -> None:
    assert pools.run(2, steps_elsewhere) == [True, True]


def steps_elsewhere(rank: int, world: int) -> bool:
    model = shard(decoder())
    engine = headrace.attach(model)
    other = torch.nn.Linear(2, 2)
    other.weight.grad = torch.ones_like(other.weight)
    before = other.weight.detach().clone()
    with engine.minibatch(tokens=total):
        torch.optim.SGD(other.parameters(), lr=0.1).step()
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    with engine.evaluation(), torch.no_grad():
        model(data[0])
    engine.detach()
    return not torch.equal(other.weight, before)


def wrong_arguments(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    for wrong in (
        {"tokens": "many"},
        {"tokens": torch.ones(2)},
        {"tokens": 10**400},
        {"plan": 1.5},
    ):
        with pytest.raises(OperationError, match=next(iter(wrong))), engine.minibatch(**wrong):
            pass
    assert_still_right(engine, model, rank, world)  # the session is as it was
    engine.detach()


def test_wrong_arguments_leave_the_session_as_it_was(pools: RankPools) -> None:
    pools.run(2, wrong_arguments)
