"""Ranks that fail, leave or differ in what they enter are named on every rank."""

import signal
import time
from pathlib import Path
from typing import Any

import headrace
import pytest
from headrace.errors import PeerError
from support.brackets import assert_still_right, caught, data, step, total
from support.models import decoder, loss_sum, shard
from support.ranks import RankPools, Ranks

with_worker_threads = True


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
