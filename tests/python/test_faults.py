"""Faults of whole processes in real training, with data-loader workers alive: every survivor names
the rank at fault in time, and nothing of the job remains."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch
import torch.nn as nn
from support.models import decoder, loss_sum, samples, shard
from support.ranks import Outcome, Ranks
from torch.utils.data import DataLoader
from torch.utils.data._utils import worker

_world = 3
_victim = 1  # is killed, stopped, raises or leaves
_late = 2  # the victim waits for it inside the engine
_limit_seconds = 30.0
_seconds_to_raise = 5.0

data = samples(48)


@dataclass
class Seen:
    """What a survivor tells of its failure and of what it was left with."""

    kind: str = ""
    text: str = ""
    rank: int = -1
    at: float = 0.0  # time.monotonic() of the whole machine
    workers: list[int] = field(default_factory=list)  # process ids of its data loader
    kept: list[str] = field(default_factory=list)


class Spied:
    """The engine's session, with something done before one of its calls."""

    def __init__(self, session: object, call: str, before: Callable[[], None]) -> None:
        self._session, self._call, self._before = session, call, before

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            self._before()
        return getattr(self._session, name)


class Flags:
    """Files by which the ranks and the test tell one another how far they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, name: str) -> None:
        (self.folder / f"{name}.new").write_text(str(time.monotonic()))
        (self.folder / f"{name}.new").rename(self.folder / name)

    def wait(self, name: str) -> float:
        """When it was set."""
        limit = time.monotonic() + _limit_seconds
        while not (self.folder / name).exists():
            assert time.monotonic() < limit, f"nobody set '{name}'"
            time.sleep(0.005)
        return float((self.folder / name).read_text())


def held_by(pid: int) -> list[str]:
    """Descriptors and mappings of the process that may be the engine's; pipes are the loader's."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(fd.readlink())
        except OSError:  # closed meanwhile, as that of this listing
            continue
        if not target.startswith("pipe:"):
            found.append(f"fd {target}")
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return found + [f"map {line}" for line in maps if "headrace" in line and "memfd" in line]


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def kill_self_soon() -> None:
    """After a millisecond, in whatever native call this process is then."""

    def kill() -> None:
        time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def loader_of(rank: int) -> Iterator[torch.Tensor]:
    multiprocessing.current_process().daemon = False  # a daemon may have no children
    worker.MP_STATUS_CHECK_INTERVAL = 0.5  # how soon an orphan notices
    mine = data[rank::_world]
    return iter(DataLoader(mine, batch_size=None, num_workers=2, multiprocessing_context="fork"))


def spring(where: str, engine: headrace.Engine, model: nn.Module, rank: int, flags: Flags) -> None:
    """Prepares the fault of the second minibatch."""

    def wait_in_forward(*_: object) -> None:
        flags.wait("done")

    def halt(*_: object) -> None:
        flags.set("there")
        time.sleep(_limit_seconds)

    def push() -> None:
        flags.set("there")
        kill_self_soon()

    if rank == _late and where == "gather":
        flags.wait("done")  # outside the bracket: nothing is published
    if rank == _late and where == "settle":
        model.blocks[0].register_forward_hook(wait_in_forward)
    if rank == _victim:
        if where in ("gather", "settle"):
            engine._session = Spied(engine._session, where, lambda: flags.set("there"))
        elif where == "push":
            engine._session = Spied(engine._session, where, push)
        elif where == "compute":
            model.blocks[1].register_forward_hook(halt)


def train(
    rank: int, world: int, folder: Path, where: str, sizes: dict[str, int], settings: dict[str, Any]
) -> Seen:
    flags, seen = Flags(folder), Seen()
    before = held_by(os.getpid())
    model = shard(decoder(**sizes))
    engine = headrace.attach(model, **settings)
    loader = loader_of(rank)
    seen.workers = [process.pid for process in loader._workers]
    (folder / f"workers.{rank}").write_text(" ".join(map(str, seen.workers)))
    next_ids = iter(loader)
    try:
        for number in range(3):
            if number == 1:
                spring(where, engine, model, rank, flags)
                if rank == _victim and where == "leaves":
                    break
            with engine.minibatch(samples=world):
                if rank == _victim and number == 1 and where == "raises":
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


def assert_nothing_remains(ranks: Ranks, folder: Path) -> None:
    pids = [process.pid for process in ranks.processes]
    for file in folder.glob("workers.*"):
        pids += [int(pid) for pid in file.read_text().split()]
    assert len(pids) == 3 * _world
    ranks.close()
    limit = time.monotonic() + 10
    while left := [pid for pid in pids if not is_gone(pid)]:
        assert time.monotonic() < limit, f"processes {left} remain"
        time.sleep(0.05)
    assert not [entry for entry in os.listdir("/dev/shm") if "headrace" in entry]


def assert_named(outcome: Outcome, since: float, words: str, earliest: float = 0.0) -> None:
    seen = outcome.value
    assert seen is not None, outcome.traceback or outcome.message
    assert (seen.kind, seen.rank) == ("PeerError", _victim), seen.text
    assert words in seen.text
    assert earliest <= seen.at - since <= earliest + _seconds_to_raise
    assert seen.kept == []


@pytest.mark.parametrize("where", ["gather", "push", "settle", "compute"])
def test_a_killed_rank_is_named_and_nothing_remains(tmp_path: Path, where: str) -> None:
    flags = Flags(tmp_path)
    sizes = {"width": 1024, "blocks": 2} if where == "push" else {}
    with Ranks(_world) as ranks:
        ranks.start(train, tmp_path, where, sizes, {})
        since = flags.wait("there")
        if where != "push":
            time.sleep(0.2)  # by then it waits in the engine, or computes
            since = time.monotonic()
            ranks.signal(_victim)
        flags.set("done")
        found = ranks.outcomes(limit=_limit_seconds)
        assert found[_victim].exit_code == -signal.SIGKILL
        for rank in (0, _late):
            assert_named(found[rank], since, "rank 1 died")
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
        for outcome in ranks.outcomes(limit=_limit_seconds, ranks=[0, _late]):
            # The last heartbeat seen may be one look (50 ms) older than the signal.
            assert_named(outcome, since, "rank 1 is silent", earliest=silence - 0.1)
        assert_nothing_remains(ranks, tmp_path)


@pytest.mark.parametrize(
    ("where", "words"), [("raises", "MemoryError: no room for sample 7"), ("leaves", "rank 1 left")]
)
def test_a_rank_that_raises_or_leaves_early_is_named(
    tmp_path: Path, where: str, words: str
) -> None:
    since = time.monotonic()
    with Ranks(_world) as ranks:
        ranks.start(train, tmp_path, where, {}, {})
        found = ranks.outcomes(limit=_limit_seconds)
        assert found[_victim].value is not None, found[_victim].traceback
        assert found[_victim].value.kind == ("MemoryError" if where == "raises" else "")
        assert found[_victim].value.kept == []
        for rank in (0, _late):
            assert_named(found[rank], since, words)
        assert_nothing_remains(ranks, tmp_path)
