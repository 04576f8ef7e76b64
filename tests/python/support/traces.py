"""What a trace file must have for viewers."""

import json
from pathlib import Path
from typing import Any


def check_format(path: Path, ranks: int) -> list[dict[str, Any]]:
    """What the trace event format asks for; returns the complete events."""
    trace = json.loads(path.read_text())
    names: dict[tuple[int, int], str] = {}
    complete = []
    for event in trace["traceEvents"]:
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert not complete, "metadata comes first"
            if event["name"] == "thread_name":
                names[event["pid"], event["tid"]] = event["args"]["name"]
        else:
            assert event["ph"] == "X"
            assert event["ts"] >= 0 and event["dur"] >= 0
            assert (event["pid"], event["tid"]) in names
            complete.append(event)
    times = [event["ts"] for event in complete]
    assert times == sorted(times) and times[0] == 0
    assert {event["pid"] for event in complete} == set(range(ranks))
    for rank in range(ranks):
        for thread in {thread for process, thread in names if process == rank}:
            check_nesting([e for e in complete if (e["pid"], e["tid"]) == (rank, thread)])
    return complete


def check_nesting(events: list[dict[str, Any]]) -> None:
    """On one thread a slice lies within another or beside it."""
    open_until: list[float] = []
    for event in events:
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        end = event["ts"] + event["dur"]
        assert not open_until or end <= open_until[-1] + 1e-3
        open_until.append(end)
