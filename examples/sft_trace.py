"""What each rank did when, and the figures of a step that follow from it.

Times are time.monotonic_ns: one clock for every process of a host.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch.distributed as dist


@dataclass
class Event:
    """One piece of communication on one rank. `waited_ns` is the part spent waiting for another
    rank; None where the engine cannot tell and ranks must be compared (see fill_waits). One that is
    `beside` ran on a thread of its own and held nothing up."""

    name: str
    begin_ns: int
    end_ns: int
    bytes: int
    waited_ns: int | None = None
    group: str | None = None  # of parameters, where the engine names it
    thread: str = "caller"
    beside: bool = False


@dataclass
class Micro:
    """One microbatch on one rank: forward and backward, with the communication they call for."""

    begin_ns: int
    end_ns: int
    lengths: list[int]


@dataclass
class RankStep:
    """One rank's part of one step. `update` is clipping and the optimizer; memory in bytes."""

    rank: int
    begin_ns: int
    end_ns: int = 0
    update: tuple[int, int] = (0, 0)
    micros: list[Micro] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    memory: int = 0
    cpu_ns: int = 0  # of all this rank's threads, spent between begin and end

    def as_json(self) -> dict:
        return asdict(self)

    def trace_events(self, step: int) -> list[dict]:
        """For headrace.trace."""
        begin, end = self.update
        return [
            _slice(f"step {step}", "brackets", self.begin_ns, self.end_ns),
            *(
                _slice(f"{sum(micro.lengths)} tokens", "compute", micro.begin_ns, micro.end_ns)
                for micro in self.micros
            ),
            _slice("update", "compute", begin, end),
            *map(asdict, self.events),
        ]


def _slice(name: str, track: str, begin_ns: int, end_ns: int) -> dict:
    return {"name": name, "track": track, "begin_ns": begin_ns, "end_ns": end_ns}


def fill_waits(ranks: Sequence[RankStep]) -> None:
    """Sets the waits of blocking collectives: until the last rank enters one, the others wait.

    Every rank must have called the same collectives in the same order.
    """
    for together in zip(*(rank.events for rank in ranks), strict=True):
        last = max(event.begin_ns for event in together)
        for event in together:
            event.waited_ns = max(0, min(last, event.end_ns) - event.begin_ns)


def figures(ranks: Sequence[RankStep], tokens: int) -> dict[str, float]:
    """A step's figures: its time is the slowest rank's, bytes are all ranks' together, waiting,
    moving, update and processor time are means over ranks, memory is the largest rank's."""
    if any(event.waited_ns is None for rank in ranks for event in rank.events):
        fill_waits(ranks)
    step_ns = max(rank.end_ns - rank.begin_ns for rank in ranks)
    exposed = [event for rank in ranks for event in rank.events if not event.beside]
    waited_ns = sum(event.waited_ns or 0 for event in exposed)
    in_events_ns = sum(event.end_ns - event.begin_ns for event in exposed)
    return {
        "step_ms": step_ns / 1e6,
        "tokens_per_s": tokens * 1e9 / step_ns,
        "waiting_ms": waited_ns / 1e6 / len(ranks),
        "moving_ms": (in_events_ns - waited_ns) / 1e6 / len(ranks),
        "update_ms": sum(rank.update[1] - rank.update[0] for rank in ranks) / 1e6 / len(ranks),
        "cpu_ms": sum(rank.cpu_ns for rank in ranks) / 1e6 / len(ranks),
        "bytes": sum(event.bytes for rank in ranks for event in rank.events),
        "memory": max(rank.memory for rank in ranks),
    }


def peak_memory() -> int:
    """Peak resident memory of this process in bytes, shared memory that it touched included."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM line")


def on_rank_0(mine: RankStep) -> list[RankStep] | None:
    """Every rank's part of a step on rank 0, None elsewhere."""
    if not dist.is_initialized():
        return [mine]
    everyone: list[RankStep] | None = (
        [mine] * dist.get_world_size() if dist.get_rank() == 0 else None
    )
    dist.gather_object(mine, everyone, dst=0)
    return everyone
