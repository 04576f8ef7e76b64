"""Faults of whole processes in real training, with data-loader workers alive: every survivor names
the rank at fault in time, and nothing of the job remains."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch.nn as nn
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
from support.models import decoder, loss_sum, samples, shard
from support.ranks import Ranks

_world = 3
_victim = 1  # is killed, stopped, raises or leaves
_late = 2  # the victim waits for it inside the engine

data = samples(48)


class Spied:
    """The engine's session, with something done before one of its calls."""

    def __init__(self, session: object, call: str, before: Callable[[], None]) -> None:
        self._session, self._call, self._before = session, call, before

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            self._before()
        return getattr(self._session, name)


def spring(where: str, engine: headrace.Engine, model: nn.Module, rank: int, flags: Flags) -> None:
    """Prepares the fault of the second minibatch."""

    def wait_in_forward(*_: object) -> None:
        flags.wait("done")

    def halt(*_: object) -> None:
        flags.set("there")
        time.sleep(limit_seconds)

    def push() -> None:
        flags.set("there")
        kill_self_soon()

    if rank == _late and where == "gather":
        flags.wait("done")  # outside the bracket: nothing is published
    if rank == _late and where == "settle":
        model.blocks[0].register_forward_hook(wait_in_forward)
    if rank == _victim:
        if where in ("gather", "settle"):
            call = "wait_gather" if where == "gather" else where
            engine._session = Spied(engine._session, call, lambda: flags.set("there"))
        elif where == "push":
            engine._on_demand._session = Spied(engine._session, where, push)
        elif where == "compute":
            model.blocks[1].register_forward_hook(halt)


def train(
    rank: int, world: int, folder: Path, where: str, sizes: dict[str, int], settings: dict[str, Any]
) -> Seen:
    flags, seen = Flags(folder), Seen()
    before = held_by(os.getpid())
    model = shard(decoder(**sizes))
    engine = headrace.attach(model, **settings)
    loader = loader_of(data[rank::_world])
    seen.workers = [process.pid for process in loader._workers]
    (folder / f"workers.{rank}").write_text(" ".join(map(str, seen.workers)))
    next_ids = iter(loader)
    try:
        for number in range(3):
            if number == 1:
                spring(where, engine, model, rank, flags)
                if rank == _victim and where == "leaves":
                    flags.set("there")
                    break
            with engine.minibatch(samples=world):
                if rank == _victim and number == 1 and where == "raises":
                    flags.set("there")
                    raise MemoryError("no room for sample 7")
                engine.backward(loss_sum(model, next(next_ids)))
    except Exception as error:
        seen.kind, seen.text = type(error).__name__, str(error)
        seen.rank, seen.at = getattr(error, "rank", -1), time.monotonic()
    for pid in seen.workers:
        assert not is_gone(pid)
        seen.kept += [f"worker: {what}" for what in held_by(pid) if "headrace" in what]
    engine.detach()
    del loader, next_ids
    seen.kept += sorted(set(held_by(os.getpid())) - set(before))
    return seen


@pytest.mark.parametrize("worker_threads", [False, True])
@pytest.mark.parametrize("where", ["gather", "push", "settle", "compute"])
def test_a_killed_rank_is_named_and_nothing_remains(
    tmp_path: Path, where: str, worker_threads: bool
) -> None:
    flags = Flags(tmp_path)
    sizes = {"width": 1024, "blocks": 2} if where == "push" else {}
    with Ranks(_world) as ranks:
        ranks.start(train, tmp_path, where, sizes, {"worker_threads": worker_threads})
        since = flags.wait("there")
        if where != "push":
            time.sleep(0.2)  # by then it waits in the engine, or computes
            since = time.monotonic()
            ranks.signal(_victim)
        flags.set("done")
        found = ranks.outcomes(limit=limit_seconds)
        assert found[_victim].exit_code == -signal.SIGKILL
        for rank in (0, _late):
            assert_named(found[rank], _victim, since, "rank 1 died")
        assert_nothing_remains(ranks, tmp_path)


def test_a_stopped_rank_is_named_after_the_limit_and_not_before(tmp_path: Path) -> None:
    flags = Flags(tmp_path)
    silence = 3.0
    with Ranks(_world) as ranks:
        ranks.start(train, tmp_path, "compute", {}, {"silence_seconds": silence})
        flags.wait("there")
        time.sleep(0.2)
        since = time.monotonic()
        ranks.signal(_victim, signal.SIGSTOP)
        for outcome in ranks.outcomes(limit=limit_seconds, ranks=[0, _late]):
            assert_named(outcome, _victim, since, "rank 1 is silent", silence)
        assert_nothing_remains(ranks, tmp_path)


@pytest.mark.parametrize(
    ("where", "words"), [("raises", "MemoryError: no room for sample 7"), ("leaves", "rank 1 left")]
)
def test_a_rank_that_raises_or_leaves_early_is_named(
    tmp_path: Path, where: str, words: str
) -> None:
    with Ranks(_world) as ranks:
        ranks.start(train, tmp_path, where, {}, {})
        since = Flags(tmp_path).wait("there")
        found = ranks.outcomes(limit=limit_seconds)
        assert found[_victim].value is not None, found[_victim].traceback
        assert found[_victim].value.kind == ("MemoryError" if where == "raises" else "")
        assert found[_victim].value.kept == []
        for rank in (0, _late):
            assert_named(found[rank], _victim, since, words)
        assert_nothing_remains(ranks, tmp_path)
