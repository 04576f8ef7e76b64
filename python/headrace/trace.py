"""Timelines of all ranks as one file that Perfetto (ui.perfetto.dev) and chrome://tracing show.

The format is Chrome's trace events as JSON: a process a rank, a thread for brackets, one for the
operations that the training loop's thread does inside of them and one for each thread that works
beside it; complete events with times in microseconds since the earliest event.

Times are time.monotonic_ns, one clock for all processes of a host. Clocks of other hosts have
nothing in common with it: give `offsets_ns`, what to add to each rank's times, or look at each host
by itself.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]  # of engine.timeline()

# Threads of a rank, in the order in which viewers show them. An event may name another `track`.
TRACKS = ("brackets", "operations")
_caller = "caller"  # the thread of the training loop
_brackets = ("minibatch", "evaluation")
_shown = ("group", "epoch", "bytes")  # fields of an event that viewers list beside its times


def write(
    path: Path | str,
    ranks: Mapping[int, Iterable[Event]],
    offsets_ns: Mapping[int, int] | None = None,
) -> None:
    """Writes what each rank's engine.timeline() gave. An operation's waiting for peers is a slice
    of its own inside of it, at its beginning: how long it was is measured, when it was is not."""
    events = list(trace_events(ranks, offsets_ns or {}))
    Path(path).write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n")


def trace_events(
    ranks: Mapping[int, Iterable[Event]], offsets_ns: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    """Metadata first, then complete events by time; of those that begin together, the longest
    first, as viewers nest them."""
    by_rank = {rank: list(events) for rank, events in ranks.items()}
    tracks = list(TRACKS)
    for events in by_rank.values():
        tracks += [track for track in map(_track, events) if track not in tracks]
    for rank in sorted(by_rank):
        yield _named("process_name", rank, 0, name=f"rank {rank}")
        yield _named("process_sort_index", rank, 0, sort_index=rank)
        for number, track in enumerate(tracks):
            yield _named("thread_name", rank, number, name=track)
            yield _named("thread_sort_index", rank, number, sort_index=number)
    begins = [e["begin_ns"] + offsets_ns.get(r, 0) for r, es in by_rank.items() for e in es]
    origin = min(begins, default=0)
    slices = [
        one
        for rank, events in by_rank.items()
        for event in events
        for one in _slices(event, rank, tracks, origin - offsets_ns.get(rank, 0))
    ]
    yield from sorted(slices, key=lambda one: (one["ts"], -one["dur"]))


def _track(event: Event) -> str:
    if "track" in event:
        return event["track"]
    thread = event.get("thread", _caller)
    return TRACKS[event["name"] not in _brackets] if thread == _caller else thread


def _named(kind: str, rank: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": rank, "tid": thread, "args": args}


def _slices(event: Event, rank: int, tracks: list[str], origin: int) -> Iterator[dict[str, Any]]:
    waited = event.get("waited_ns") or 0
    args = {name: event[name] for name in _shown if event.get(name) is not None}
    complete = {
        "name": event["name"],
        "cat": _track(event),
        "ph": "X",
        "pid": rank,
        "tid": tracks.index(_track(event)),
        "ts": (event["begin_ns"] - origin) / 1e3,
        "dur": (event["end_ns"] - event["begin_ns"]) / 1e3,
        "args": {**args, "waited_us": waited / 1e3},
    }
    yield complete
    if waited and event["name"] not in _brackets:  # a bracket's are those of its operations
        yield {**complete, "name": "waiting", "cat": "waiting", "dur": waited / 1e3, "args": {}}
