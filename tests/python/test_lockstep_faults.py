"""What lockstep mode does when a rank dies, raises, leaves or runs something else."""

import os
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch
from headrace.errors import HeadraceError
from support.faults import (
    Flags,
    Seen,
    assert_named,
    assert_nothing_remains,
    held_by,
    is_gone,
    kill_self_soon,
    limit_seconds,
    loader_of,
)
from support.lockstep import Loop, data
from support.models import decoder, loss_sum, shard
from support.ranks import RankPools, Ranks

_world = 3
_victim = 1
_soon_seconds = 5.0


# -- a rank that is killed, stopped, raises or leaves, with data-loader workers alive


def spring(where: str, loop: Loop, flags: Flags) -> None:
    """Prepares the victim's fault."""

    def strike(*_: object) -> None:
        if where == "stopped":
            flags.set("there")
            time.sleep(limit_seconds)
        if where == "raises":
            flags.set("there")
            raise MemoryError("no room for sample 7")
        flags.set("there")
        if where == "call":
            kill_self_soon()
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    if where in ("forward", "stopped", "raises"):
        loop.model.blocks[1].register_forward_hook(strike)
    elif where == "backward":
        loop.model.blocks[1].register_full_backward_hook(strike)
    elif where == "optimizer":
        loop.optimizer.register_step_pre_hook(strike)
    elif where == "call":
        loop.model.blocks[0].register_forward_pre_hook(strike)


def train(
    rank: int, world: int, folder: Path, where: str, sizes: dict[str, int], settings: dict[str, Any]
) -> Seen:
    flags, seen = Flags(folder), Seen()
    before = held_by(os.getpid())
    model = shard(decoder(**sizes))
    engine = headrace.attach(model, mode="lockstep", **settings)
    loader = loader_of(data[rank::world])
    seen.workers = [process.pid for process in loader._workers]
    (folder / f"workers.{rank}").write_text(" ".join(map(str, seen.workers)))
    loop = Loop(model, rank, world)
    try:
        for number in range(4):
            if number == 1 and rank == _victim:
                spring(where, loop, flags)
                if where == "leaves":
                    flags.set("there")
                    break
            loss_sum(model, next(loader)).backward()
            loop.end_step()
    except Exception as error:
        seen.kind, seen.text = type(error).__name__, str(error)
        seen.rank, seen.at = getattr(error, "rank", -1), time.monotonic()
    for pid in seen.workers:
        assert not is_gone(pid)
        seen.kept += [f"worker: {what}" for what in held_by(pid) if "headrace" in what]
    engine.detach()
    del loader
    seen.kept += sorted(set(held_by(os.getpid())) - set(before))
    return seen


@pytest.mark.parametrize("where", ["forward", "backward", "optimizer", "call"])
def test_a_killed_rank_is_named_and_nothing_remains(tmp_path: Path, where: str) -> None:
    sizes = {"width": 512, "blocks": 2} if where == "call" else {}
    with Ranks(_world) as ranks:
        ranks.start(train, tmp_path, where, sizes, {})
        since = Flags(tmp_path).wait("there")
        found = ranks.outcomes(limit=limit_seconds)
        assert found[_victim].exit_code == -signal.SIGKILL
        for rank in (0, 2):
            assert_named(found[rank], _victim, since, "rank 1 died")
        assert_nothing_remains(ranks, tmp_path)


def test_a_stopped_rank_is_named_after_the_limit_and_not_before(tmp_path: Path) -> None:
    silence = 3.0
    with Ranks(_world) as ranks:
        ranks.start(train, tmp_path, "stopped", {}, {"silence_seconds": silence})
        Flags(tmp_path).wait("there")
        time.sleep(0.2)
        since = time.monotonic()
        ranks.signal(_victim, signal.SIGSTOP)
        for outcome in ranks.outcomes(limit=limit_seconds, ranks=[0, 2]):
            assert_named(outcome, _victim, since, "rank 1 is silent", silence)
        assert_nothing_remains(ranks, tmp_path)


@pytest.mark.parametrize("where", ["raises", "leaves"])
def test_a_rank_that_raises_or_leaves_early_is_named(tmp_path: Path, where: str) -> None:
    with Ranks(_world) as ranks:
        ranks.start(train, tmp_path, where, {}, {})
        since = Flags(tmp_path).wait("there")
        found = ranks.outcomes(limit=limit_seconds)
        assert found[_victim].value is not None, found[_victim].traceback
        assert found[_victim].value.kind == ("MemoryError" if where == "raises" else "")
        assert found[_victim].value.kept == []
        for rank in (0, 2):
            assert_named(found[rank], _victim, since, "rank 1 left")
        assert_nothing_remains(ranks, tmp_path)


# -- an exception that ends a loop without brackets


def loop_that_fails(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model, mode="lockstep")
    loop = Loop(model, rank, world)
    loop.steps(2)
    if rank == _victim:
        raise MemoryError("no room for sample 7")
    loop.steps(2)
    engine.detach()


def raise_and_train_on(rank: int, world: int, folder: Path) -> tuple[str, int, float]:
    flags = Flags(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # that an attached engine was dropped
            loop_that_fails(rank, world)
    except MemoryError:
        pass  # the traceback held the engine until here
    except HeadraceError as error:
        at = time.monotonic()
        flags.set("named")
        return str(error), getattr(error, "rank", -1), at
    flags.set("raised")
    flags.wait("named")  # the process lives on
    return "", -1, 0.0


def test_a_loop_that_an_exception_ends_is_named_though_its_process_lives(
    pools: RankPools, tmp_path: Path
) -> None:
    survivor, _ = pools.run(2, raise_and_train_on, tmp_path)
    text, rank, at = survivor
    assert "rank 1 left" in text and rank == _victim
    assert at - Flags(tmp_path).wait("raised") < _soon_seconds


# -- ranks that run different things


def message_of(engine: headrace.Engine, body: Callable[[], None]) -> tuple[str, float]:
    begin = time.monotonic()
    try:
        body()
    except HeadraceError as error:
        return str(error), time.monotonic() - begin
    finally:
        engine.detach()
    return "", time.monotonic() - begin


def other_microbatches(rank: int, world: int, residence: str) -> tuple[str, float]:
    """Rank 0 accumulates two microbatches a step and rank 1 one."""
    model = shard(decoder())
    engine = headrace.attach(model, mode="lockstep", residence=residence)
    loop = Loop(model, rank, world)

    def body() -> None:
        loop.steps(2)
        for _ in range(4):
            for _ in range(2 - rank):
                loop.microbatch()
            loop.end_step()

    return message_of(engine, body)


@pytest.mark.parametrize("residence", ["in-place", "slot-reuse"])
def test_other_numbers_of_microbatches_between_steps_are_an_error(
    pools: RankPools, residence: str
) -> None:
    for text, seconds in pools.run(2, other_microbatches, residence):
        assert "number of microbatches" in text
        assert seconds < _soon_seconds


def other_microbatches_in_a_bracket(
    rank: int, world: int, mode: str, evaluation: bool
) -> tuple[str, float]:
    model = shard(decoder())
    engine = headrace.attach(model, mode=mode)

    def body() -> None:
        for counts in ((1, 1), (2, 1)):
            with torch.set_grad_enabled(not evaluation):
                if evaluation:
                    with engine.evaluation(mode="lockstep"):
                        for _ in range(counts[rank]):
                            model(data[rank][None])
                else:
                    with engine.minibatch(samples=2, mode="lockstep"):
                        for _ in range(counts[rank]):
                            engine.backward(loss_sum(model, data[rank]))

    return message_of(engine, body)


@pytest.mark.parametrize("evaluation", [False, True])
@pytest.mark.parametrize("mode", ["lockstep", "auto"])
def test_other_numbers_of_microbatches_in_a_bracket_are_an_error(
    pools: RankPools, mode: str, evaluation: bool
) -> None:
    for text, seconds in pools.run(2, other_microbatches_in_a_bracket, mode, evaluation):
        assert "rank 1 is leaving its bracket where rank 0" in text or (
            "rank 0 is in an all-gather" in text and "where rank 1 is leaving its bracket" in text
        )
        assert seconds < _soon_seconds


def bracket_or_not(rank: int, world: int) -> tuple[str, float]:
    model = shard(decoder())
    engine = headrace.attach(model, mode="lockstep")

    def body() -> None:
        if rank == 0:
            loss_sum(model, data[0]).backward()
        else:
            with engine.minibatch(samples=2):
                engine.backward(loss_sum(model, data[1]))

    return message_of(engine, body)


def test_a_bracket_on_one_rank_alone_is_an_error(pools: RankPools) -> None:
    for text, seconds in pools.run(2, bracket_or_not):
        assert "entering a bracket" in text and "all-gather" in text
        assert seconds < _soon_seconds


def other_parameters(rank: int, world: int) -> tuple[str, float]:
    model = shard(decoder())
    engine = headrace.attach(model, mode="lockstep")
    if rank == 1:
        model.blocks[1].up.bias.requires_grad_(False)
    return message_of(engine, lambda: Loop(model, rank, world).steps(1))


def test_other_parameters_with_a_gradient_are_an_error(pools: RankPools) -> None:
    for text, seconds in pools.run(2, other_parameters):
        assert "same parameters" in text and "blocks.1" in text
        assert seconds < _soon_seconds
