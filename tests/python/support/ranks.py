"""Ranks as processes: start N of them, give all of them a function, see what became of each, end
them for sure.

A rank is forked from a server that has imported torch already, so a start costs tens of
milliseconds. Every wait has a limit, after which all ranks are killed.
"""

import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["headrace._attach", "torch._dynamo", "torch.optim"])

_limit_seconds = 100.0  # less than a test's own
_grace_seconds = 5.0  # for the others, after one rank of run() has failed


@dataclass(frozen=True)
class Outcome:
    """What became of one rank's call."""

    rank: int
    value: Any = None
    error: str = ""  # "" where it returned; else the exception's class name, or "died"
    message: str = ""
    traceback: str = ""
    exit_code: int | None = None  # where it died: -9 after SIGKILL
    seconds: float = 0.0  # from start() to its end


class RanksFailed(AssertionError):
    """Some rank raised, died or was not done in time."""


class Ranks:
    """`world_size` processes that run one function at a time, called as function(rank, world_size,
    *args).

    With `process_group` a gloo group over a file store is initialised before the first function;
    every gloo group has one worker thread, see support.gloo.
    With `worker_threads` their headrace.attach has worker threads unless told otherwise.
    Functions and arguments must be picklable: functions at the top of a module.
    """

    def __init__(
        self, world_size: int, *, process_group: bool = True, worker_threads: bool = False
    ) -> None:
        self.world_size = world_size
        self._folder = tempfile.mkdtemp(prefix="ranks-")
        self._started = time.monotonic()
        self._pending: dict[int, Connection] = {}
        self._outcomes: dict[int, Outcome] = {}
        self.processes = []
        self._pipes: list[Connection] = []
        store = os.path.join(self._folder, "store") if process_group else ""
        for rank in range(world_size):
            ours, theirs = _context.Pipe()
            process = _context.Process(
                target=_serve, args=(rank, world_size, store, worker_threads, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(ours)

    def start(self, function: Callable[..., Any], *args: Any) -> None:
        """Gives every rank the function and does not wait."""
        assert not self._pending, "the ranks are busy"
        self._started = time.monotonic()
        self._outcomes = {}
        for rank, pipe in enumerate(self._pipes):
            pipe.send((function, args))
            self._pending[rank] = pipe

    def signal(self, rank: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.processes[rank].pid, number)

    def outcomes(
        self, limit: float = _limit_seconds, ranks: list[int] | None = None
    ) -> list[Outcome]:
        """Waits until each rank (or those named) has returned, raised or died. Kills all after
        `limit` seconds and raises RanksFailed naming those not done."""
        wanted = list(range(self.world_size)) if ranks is None else ranks
        deadline = time.monotonic() + limit
        while waiting := [rank for rank in wanted if rank in self._pending]:
            left = deadline - time.monotonic()
            if left <= 0:
                self.close()
                raise RanksFailed(f"rank(s) {waiting} not done after {limit:g} s: killed")
            ready = wait([self._pending[rank] for rank in waiting], timeout=left)
            for rank in waiting:
                if self._pending[rank] in ready:
                    self._take(rank)
        return [self._outcomes[rank] for rank in wanted]

    def run(
        self, function: Callable[..., Any], *args: Any, limit: float = _limit_seconds
    ) -> list[Any]:
        """What the function returned on each rank; RanksFailed with the tracebacks otherwise."""
        self.start(function, *args)
        deadline = time.monotonic() + limit
        while self._pending and (left := deadline - time.monotonic()) > 0:
            for pipe in wait(list(self._pending.values()), timeout=left):
                rank = next(r for r, p in self._pending.items() if p is pipe)
                self._take(rank)
                if self._outcomes[rank].error:  # its peers may be stuck without it
                    deadline = min(deadline, time.monotonic() + _grace_seconds)
        bad = [outcome for outcome in self._outcomes.values() if outcome.error]
        if bad or self._pending:
            late = sorted(self._pending)
            self.close()
            texts = [f"rank {o.rank}: {o.error}: {o.message}\n{o.traceback}" for o in bad]
            if late:
                texts.append(f"rank(s) {late} not done: killed")
            raise RanksFailed("\n".join(texts))
        return [self._outcomes[rank].value for rank in range(self.world_size)]

    @property
    def alive(self) -> bool:
        return all(process.is_alive() for process in self.processes) and bool(self.processes)

    def close(self) -> None:
        """Kills every rank, stopped ones too, and removes the store. Idempotent."""
        for process in self.processes:
            if process.is_alive():
                process.kill()
        for process in self.processes:
            process.join(10)
        for pipe in self._pipes:
            pipe.close()
        self.processes, self._pipes, self._pending = [], [], {}
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _take(self, rank: int) -> None:
        pipe = self._pending.pop(rank)
        seconds = time.monotonic() - self._started
        try:
            value, error, message, trace = pipe.recv()
        except (EOFError, ConnectionResetError):
            self.processes[rank].join(10)
            code = self.processes[rank].exitcode
            self._outcomes[rank] = Outcome(
                rank, error="died", message=f"exit code {code}", exit_code=code, seconds=seconds
            )
            return
        self._outcomes[rank] = Outcome(rank, value, error, message, trace, seconds=seconds)


class RankPools:
    """Keeps one set of ranks for each world size, and replaces a set whose last function failed."""

    def __init__(self, worker_threads: bool = False) -> None:
        self.worker_threads = worker_threads
        self._sets: dict[int, Ranks] = {}

    def run(
        self,
        world_size: int,
        function: Callable[..., Any],
        *args: Any,
        limit: float = _limit_seconds,
    ) -> list[Any]:
        ranks = self._sets.get(world_size)
        if ranks is None or not ranks.alive:
            if ranks is not None:
                ranks.close()
            ranks = self._sets[world_size] = Ranks(world_size, worker_threads=self.worker_threads)
        return ranks.run(function, *args, limit=limit)

    def close(self) -> None:
        for ranks in self._sets.values():
            ranks.close()
        self._sets = {}


def _serve(rank: int, world_size: int, store: str, worker_threads: bool, pipe: Connection) -> None:
    import headrace
    import torch
    import torch.distributed as dist

    from support.gloo import use_one_worker

    if worker_threads:
        headrace.attach = partial(headrace.attach, worker_threads=True)
    torch.set_num_threads(1)
    if store:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        use_one_worker()
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=world_size
        )
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:  # the test is gone
            os._exit(0)
        try:
            reply = (function(rank, world_size, *args), "", "", "")
        except BaseException as error:  # reported, not handled
            reply = (None, type(error).__name__, str(error), traceback.format_exc())
        pipe.send(reply)
