"""What a bracket promises on entering and leaving, and what it refuses."""

import contextlib
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from headrace.errors import OperationError, PeerError, SessionError
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    samples,
    shard,
    tokens_of,
    unsharded_groups,
)
from support.ranks import RankPools, Ranks
from torch.distributed.tensor import DTensor, Replicate

with_worker_threads = True

data = samples(6)
total = tokens_of(data)


def step(engine: headrace.Engine, model: nn.Module, rank: int, world: int) -> None:
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))


def assert_still_right(engine: headrace.Engine, model: nn.Module, rank: int, world: int) -> None:
    """The next minibatch gives the gradients of the model's parameters as they are now."""
    plain = decoder()
    with torch.no_grad():
        for param, shard_ in zip(plain.parameters(), model.parameters(), strict=True):
            param.copy_(shard_.full_tensor())
    model.zero_grad()
    step(engine, model, rank, world)
    assert_same_gradients(full_gradients(model), reference(plain, data, total))


def caught(function: Callable[[], Any]) -> tuple[str, str, int]:
    """Class, text and rank of what a call raises; empty where it returns."""
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error), getattr(error, "rank", -1)
    return "", "", -1


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


# -- failures


class BadSample(ValueError):
    pass


def one_raises(rank: int, world: int, where: str) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)
    step(engine, model, rank, world)

    def explode(*_: object) -> None:
        raise BadSample("sample 7 is broken")

    hooks = []

    def minibatch() -> None:
        with engine.minibatch(tokens=total):
            for i, ids in enumerate(data):
                if rank == 1 and i == 2:
                    if where == "loop":
                        explode()
                    block = model.blocks[1]
                    if where == "forward":
                        hooks.append(block.register_forward_hook(explode))
                    else:
                        hooks.append(block.register_full_backward_hook(explode))
                engine.backward(loss_sum(model, ids))

    found = caught(minibatch)
    refused = caught(lambda: engine.minibatch().__enter__())
    assert refused[0] == "SessionError" and "attach again" in refused[1]
    engine.detach()
    for hook in hooks:
        hook.remove()
    engine = headrace.attach(model)  # FSDP2's iteration state is clean again
    assert_still_right(engine, model, rank, world)
    engine.detach()
    return found


@pytest.mark.parametrize("where", ["loop", "forward", "backward"])
def test_an_exception_on_one_rank_is_named_on_every_rank(pools: RankPools, where: str) -> None:
    found = pools.run(3, one_raises, where)
    assert found[1][:2] == ("BadSample", "sample 7 is broken")
    for rank in (0, 2):
        kind, text, at = found[rank]
        assert (kind, at) == ("PeerError", 1)
        assert "BadSample" in text and "sample 7 is broken" in text


def leaves_early(rank: int, world: int) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)

    def train() -> None:
        for number in range(3):
            if rank == 1 and number == 1:
                return
            step(engine, model, rank, world)

    found = caught(train)
    engine.detach()
    return found


def test_a_rank_that_leaves_the_loop_early_is_named(pools: RankPools) -> None:
    stays, leaves = pools.run(2, leaves_early)
    assert leaves == ("", "", -1)
    assert stays[0] == "PeerError" and stays[2] == 1


def interrupted(rank: int, world: int, folder: Path) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)
    step(engine, model, rank, world)
    found = ("", "", -1)
    try:
        with engine.minibatch(tokens=total):
            if rank == 0:
                (folder / "ready").touch()  # and then waits for rank 1 in settle
            while rank == 1 and not (folder / "sent").exists():
                time.sleep(0.01)
        step(engine, model, rank, world)  # rank 0 had sent all that the first bracket needed
    except (KeyboardInterrupt, PeerError) as error:
        found = type(error).__name__, str(error), getattr(error, "rank", -1)
    engine.detach()
    return found


def test_ctrl_c_ends_a_wait_and_is_named_at_the_peer(tmp_path: Path) -> None:
    with Ranks(2) as ranks:
        ranks.start(interrupted, tmp_path)
        limit = time.monotonic() + 60
        while not (tmp_path / "ready").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(0.3)
        ranks.signal(0, signal.SIGINT)
        (first,) = ranks.outcomes(limit=30, ranks=[0])
        (tmp_path / "sent").touch()
        (second,) = ranks.outcomes(limit=30, ranks=[1])
    assert first.value[0] == "KeyboardInterrupt"
    assert second.value[0] == "PeerError" and second.value[2] == 0
    assert "KeyboardInterrupt" in second.value[1]


# -- agreement


def disagree(rank: int, world: int, how: str) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)

    def minibatch() -> None:
        arguments: dict[str, Any] = {"tokens": total}
        bracket = engine.minibatch
        if rank == 1:
            if how == "tokens":
                arguments["tokens"] = total + 1
            elif how == "samples":
                arguments = {"samples": total}
            elif how == "plan":
                arguments["plan"] = 5
            elif how == "kind":
                bracket, arguments = engine.evaluation, {}
        with bracket(**arguments):
            model(data[0][None])

    found = caught(minibatch)
    engine.detach()
    return found


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("tokens", [f"{total}", f"{total + 1}"]),
        ("samples", ["tokens=...", "samples=..."]),
        ("plan", ["plan"]),
        ("kind", ["minibatch()", "evaluation()"]),
    ],
)
def test_brackets_that_differ_between_ranks_are_refused_on_every_rank(
    pools: RankPools, how: str, words: list[str]
) -> None:
    for kind, text, _ in pools.run(2, disagree, how):
        assert kind in ("OperationError", "PeerError", "SessionError"), text
        assert all(word in text for word in words), text


def mixed_rules(rank: int, world: int) -> tuple[str, str, int]:
    """Rank 0 owns its backward, rank 1 counts tokens, rank 2 trains nothing."""
    model = shard(decoder())
    engine = headrace.attach(model)

    def minibatch() -> None:
        with engine.minibatch():
            if rank == 0:
                loss_sum(model, data[0]).backward()
            if rank == 1:
                engine.backward(loss_sum(model, data[1]), tokens=3)

    found = caught(minibatch)
    assert all(param.grad is None for param in model.parameters())
    engine.detach()
    return found


def test_ranks_that_scale_differently_are_told_so_on_every_rank(pools: RankPools) -> None:
    for kind, text, _ in pools.run(3, mixed_rules):
        assert kind in ("OperationError", "PeerError")
        assert "loss.backward()" in text and "tokens=" in text


def plain_in_counted(rank: int, world: int, sync: bool) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)

    def minibatch() -> None:
        with engine.minibatch(tokens=total):
            model.set_requires_gradient_sync(sync)
            loss_sum(model, data[0]).backward()

    found = caught(minibatch)
    engine.detach()
    return found


@pytest.mark.parametrize("sync", [True, False])
def test_a_plain_backward_where_tokens_were_given_is_refused(pools: RankPools, sync: bool) -> None:
    kind, text, _ = pools.run(1, plain_in_counted, sync)[0]
    assert kind == "OperationError" and "use one of them" in text


# -- parameters that change between brackets


def state_dicts(rank: int, world: int, folder: str) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    step(engine, model, rank, world)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.5)
    assert_still_right(engine, model, rank, world)

    def assert_restored() -> None:
        for name, param in model.named_parameters():
            assert torch.equal(param.to_local(), saved[name].to_local()), name
        assert_still_right(engine, model, rank, world)

    model.load_state_dict(saved)
    assert_restored()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.5)
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    assert_restored()
    model.load_state_dict({k: v.clone() * 2 for k, v in saved.items()}, assign=True)
    assert_still_right(engine, model, rank, world)
    model.load_state_dict(saved, assign=True)
    assert_restored()
    engine.detach()


def test_state_dicts_plain_assigned_and_distributed_checkpoint(
    pools: RankPools, tmp_path: Path
) -> None:
    pools.run(2, state_dicts, str(tmp_path), limit=90)


def state_dict_in_bracket(rank: int, world: int) -> None:
    """Saving between a forward and its backward sees shards, and does not disturb the minibatch."""
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))
            for name, value in model.state_dict().items():
                assert value.placements, name
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()


def test_a_state_dict_may_be_taken_inside_a_bracket(pools: RankPools) -> None:
    pools.run(2, state_dict_in_bracket)


def moved_and_replaced(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    step(engine, model, rank, world)
    model._apply(lambda tensor: tensor * 3)  # new tensors, as .to() makes them
    assert_still_right(engine, model, rank, world)
    model.to(torch.bfloat16)
    with pytest.raises(OperationError, match=r"'.*weight'.*float32.* now torch.bfloat16"):
        step(engine, model, rank, world)
    model.to(torch.float32)
    assert_still_right(engine, model, rank, world)
    kept = model.head.weight
    model.head.weight = nn.Parameter(torch.zeros(13, 7))
    with pytest.raises(OperationError, match=r"'head.weight' was replaced"):
        step(engine, model, rank, world)
    model.head.weight = kept
    assert_still_right(engine, model, rank, world)
    engine.detach()


def test_moved_parameters_work_and_replaced_ones_are_named(pools: RankPools) -> None:
    pools.run(2, moved_and_replaced)


def options_set_later(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    model.set_gradient_divide_factor(2.0)
    with pytest.raises(OperationError, match=r"set_gradient_divide_factor\(2.0\)"):
        step(engine, model, rank, world)
    with contextlib.suppress(SessionError):
        engine.detach()


def test_an_unsupported_option_set_after_attach_is_found_at_the_bracket(pools: RankPools) -> None:
    pools.run(1, options_set_later)


def gradient_replaced(rank: int, world: int) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)
    with torch.no_grad():
        model.head.weight.grad = torch.zeros_like(model.head.weight)
    step(engine, model, rank, world)
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()
    return "", "", -1


def test_a_gradient_that_the_loop_made_is_added_to(pools: RankPools) -> None:
    pools.run(2, gradient_replaced)


def gradient_placed_otherwise(rank: int, world: int) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)
    weight = model.head.weight
    weight.grad = DTensor.from_local(torch.zeros(13, 7), weight.device_mesh, [Replicate()])
    found = caught(lambda: step(engine, model, rank, world))
    engine.detach()
    return found


def test_a_gradient_placed_unlike_its_parameter_is_refused_by_name(pools: RankPools) -> None:
    for kind, text, _ in pools.run(2, gradient_placed_otherwise):
        assert kind in ("OperationError", "PeerError")
        assert "head.weight" in text and "Replicate" in text


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
