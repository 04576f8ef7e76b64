"""The trace file: what viewers need of each event, every rank, waiting inside its operation."""

import json
import time
from pathlib import Path
from typing import Any

import headrace
import headrace.trace
import pytest
import torch
from support.models import decoder, loss_sum, samples, shard, tokens_of
from support.ranks import RankPools
from support.traces import check_format

data = samples(4)


def timeline(rank: int, world: int) -> list[dict[str, Any]]:
    """Rank 0 trains, the others wait for it; then an evaluation."""
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=tokens_of(data)):
        time.sleep(0.2 if rank == 0 else 0)
        for ids in data if rank == 0 else []:
            engine.backward(loss_sum(model, ids))
    with engine.evaluation(), torch.no_grad():
        model(data[0][None])
    events = engine.timeline()
    engine.detach()
    return events


def test_the_engines_own_events_of_every_rank(pools: RankPools, tmp_path: Path) -> None:
    timelines = dict(enumerate(pools.run(3, timeline)))
    path = tmp_path / "trace.json"
    headrace.trace.write(path, timelines)
    complete = check_format(path, ranks=3)
    waiting = [event for event in complete if event["name"] == "waiting"]
    others = [event for event in complete if event["name"] != "waiting"]
    assert len(others) == sum(map(len, timelines.values()))
    assert {event["name"] for event in others} >= {"minibatch", "evaluation", "gather", "settle"}
    for rank in (1, 2):
        (settle,) = (e for e in others if (e["pid"], e["name"]) == (rank, "settle"))
        mine = [e for e in waiting if e["pid"] == rank and e["ts"] == settle["ts"]]
        waited = settle["args"].get("waited_us")  # a late rank finds the others done
        assert [e["dur"] for e in mine] == ([waited] if waited else [])
    origin = min(event["begin_ns"] for events in timelines.values() for event in events)
    for rank, events in timelines.items():
        for event in events:
            (same,) = (
                e
                for e in others
                if (e["pid"], e["name"], e["ts"])
                == (rank, event["name"], (event["begin_ns"] - origin) / 1e3)
            )
            assert same["dur"] == (event["end_ns"] - event["begin_ns"]) / 1e3
            assert same["args"]["bytes"] == event["bytes"]
            assert same["args"].get("group") == event["group"]


def event(begin: int, end: int, **more: Any) -> dict[str, Any]:
    return {"name": "gather", "begin_ns": begin, "end_ns": end, **more}


def test_clocks_of_hosts_are_brought_together_by_offsets(tmp_path: Path) -> None:
    ranks = {0: [event(5_000, 6_000)], 1: [event(1_000_000, 1_002_000)]}
    headrace.trace.write(tmp_path / "t", ranks, offsets_ns={1: -990_000})
    complete = check_format(tmp_path / "t", ranks=2)
    assert [(e["pid"], e["ts"], e["dur"]) for e in complete] == [(0, 0, 1), (1, 5, 2)]


def test_events_of_ones_own_have_tracks_of_their_own(tmp_path: Path) -> None:
    mine = event(0, 9_000, track="compute", name="microbatch")
    headrace.trace.write(tmp_path / "t", {0: [mine, event(1_000, 2_000, waited_ns=500)]})
    complete = check_format(tmp_path / "t", ranks=1)
    assert [(e["name"], e["tid"]) for e in complete] == [
        ("microbatch", 2),
        ("gather", 1),
        ("waiting", 1),
    ]


def test_threads_that_work_beside_the_loop_have_tracks_of_their_own(tmp_path: Path) -> None:
    waits = event(0, 9_000, waited_ns=9_000, thread="caller")
    headrace.trace.write(tmp_path / "t", {0: [waits, event(1_000, 4_000, thread="gather")]})
    complete = check_format(tmp_path / "t", ranks=1)
    assert [(e["name"], e["tid"]) for e in complete] == [
        ("gather", 1),
        ("waiting", 1),
        ("gather", 2),
    ]


@pytest.mark.parametrize("events", [{}, {0: []}])
def test_nothing_is_a_trace_too(events: dict, tmp_path: Path) -> None:
    headrace.trace.write(tmp_path / "t", events)
    assert all(e["ph"] == "M" for e in json.loads((tmp_path / "t").read_text())["traceEvents"])
