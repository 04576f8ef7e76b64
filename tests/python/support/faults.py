"""Faults of whole processes: how ranks and test tell one another how far they are, what survivors
tell of their failure, and what must not remain."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils import worker

from support.ranks import Outcome, Ranks

limit_seconds = 50.0  # two of them are less than a test's own limit
seconds_to_raise = 5.0


@dataclass
class Seen:
    """What a survivor tells of its failure and of what it was left with."""

    kind: str = ""
    text: str = ""
    rank: int = -1
    at: float = 0.0  # time.monotonic() of the whole machine
    workers: list[int] = field(default_factory=list)  # process ids of its data loader
    kept: list[str] = field(default_factory=list)


class Flags:
    """Files by which the ranks and the test tell one another how far they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def set(self, name: str) -> None:
        (self.folder / f"{name}.new").write_text(str(time.monotonic()))
        (self.folder / f"{name}.new").rename(self.folder / name)

    def wait(self, name: str) -> float:
        """When it was set."""
        limit = time.monotonic() + limit_seconds
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


def loader_of(samples: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """With two workers forked from this process."""
    multiprocessing.current_process().daemon = False  # a daemon may have no children
    worker.MP_STATUS_CHECK_INTERVAL = 0.5  # how soon an orphan notices
    return iter(DataLoader(samples, batch_size=None, num_workers=2, multiprocessing_context="fork"))


def assert_nothing_remains(ranks: Ranks, folder: Path) -> None:
    pids = [process.pid for process in ranks.processes]
    for file in folder.glob("workers.*"):
        pids += [int(pid) for pid in file.read_text().split()]
    assert len(pids) == 3 * ranks.world_size
    ranks.close()
    limit = time.monotonic() + 10
    while left := [pid for pid in pids if not is_gone(pid)]:
        assert time.monotonic() < limit, f"processes {left} remain"
        time.sleep(0.05)
    assert not [entry for entry in os.listdir("/dev/shm") if "headrace" in entry]


def assert_named(
    outcome: Outcome, rank: int, since: float, words: str, silence: float = 0.0
) -> None:
    """That the survivor names the rank within a few seconds, after the silence of a stopped one,
    and was left with nothing. On a busy machine its last heartbeat is older than the stop."""
    seen = outcome.value
    assert seen is not None, outcome.traceback or outcome.message
    assert (seen.kind, seen.rank) == ("PeerError", rank), seen.text
    assert words in seen.text
    assert silence / 2 <= seen.at - since <= silence + seconds_to_raise
    assert seen.kept == []
