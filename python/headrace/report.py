"""What one bracket came to, and the trace as plain dictionaries."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from headrace._engine import Counters, TraceEvent
from headrace.scaling import Outcome


@dataclass(frozen=True)
class Traffic:
    """This rank's totals since connect; bytes include pad rows and its own shard."""

    gather_bytes: int
    push_bytes: int
    publish_bytes: int
    gathers: int
    pushes: int
    wait_ns: int
    worker_ns: int
    hidden_ns: int

    @classmethod
    def of(cls, counters: Counters) -> "Traffic":
        return cls(*(getattr(counters, name) for name in cls.__dataclass_fields__))

    def since(self, earlier: "Traffic") -> "Traffic":
        names = self.__dataclass_fields__
        return Traffic(*(getattr(self, name) - getattr(earlier, name) for name in names))


@dataclass(frozen=True)
class Report:
    """One bracket. Loss, tokens, samples and `flagged` are global and the same on every rank; the
    rest is this rank's own."""

    kind: str  # "minibatch" | "evaluation"
    mode: str  # "on-demand" | "lockstep"
    epoch: int
    loss: float | None  # mean over all tokens or samples; None where the loop owns loss.backward()
    tokens: float | None
    samples: float | None
    flagged: bool  # no valid token or sample anywhere: loss 0, gradients zero
    microbatches: int  # of engine.backward, on this rank
    elapsed_ms: float
    wait_ms: float  # held up by other ranks or, with worker threads, by their work
    hidden_ms: float  # work of worker threads while this rank's own went on
    gather_bytes: int
    push_bytes: int
    publish_bytes: int
    gathers: int
    pushes: int
    arena_bytes: int  # shared memory that this rank holds for the session
    accumulate: str  # "arrival" | "reproducible"
    tokens_lost: int | None  # to the plan's policy for samples over the cap; None without a plan

    @classmethod
    def make(
        cls,
        kind: str,
        mode: str,
        epoch: int,
        outcome: Outcome,
        microbatches: int,
        elapsed_ns: int,
        traffic: Traffic,
        arena_bytes: int,
        accumulate: str,
        tokens_lost: int | None,
    ) -> "Report":
        return cls(
            kind=kind,
            mode=mode,
            epoch=epoch,
            loss=outcome.loss,
            tokens=outcome.tokens,
            samples=outcome.samples,
            flagged=outcome.flagged,
            microbatches=microbatches,
            elapsed_ms=elapsed_ns / 1e6,
            wait_ms=traffic.wait_ns / 1e6,
            hidden_ms=max(0, traffic.hidden_ns) / 1e6,
            gather_bytes=traffic.gather_bytes,
            push_bytes=traffic.push_bytes,
            publish_bytes=traffic.publish_bytes,
            gathers=traffic.gathers,
            pushes=traffic.pushes,
            arena_bytes=arena_bytes,
            accumulate=accumulate,
            tokens_lost=tokens_lost,
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def timeline(
    events: Iterable[TraceEvent], group_names: list[str], rank: int
) -> list[dict[str, Any]]:
    """JSON-able trace events; times are time.monotonic_ns of this machine."""
    return [
        {
            "rank": rank,
            "name": event.name,
            "thread": event.thread,
            "group": group_names[event.group] if event.group >= 0 else None,
            "begin_ns": event.begin_ns,
            "end_ns": event.end_ns,
            "waited_ns": event.waited_ns,
            "bytes": event.bytes,
        }
        for event in events
    ]
