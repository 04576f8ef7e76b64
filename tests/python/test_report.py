"""What a bracket's report and the timeline say, against closed forms; and that nothing grows."""

import gc
import json
import os
import time
from pathlib import Path

import headrace
import torch
from support.faults import Flags
from support.models import decoder, loss_sum, samples, shard, tokens_of
from support.ranks import RankPools

data = samples(4)
total = tokens_of(data)


def padded_bytes(world: int) -> int:
    """One gather of the whole model in float32, or one push of all its gradients."""
    return sum(
        -(-p.shape[0] // world) * world * (p.numel() // p.shape[0]) * 4
        for p in decoder().parameters()
    )


def reports(rank: int, world: int, folder: Path) -> dict[str, dict[str, object]]:
    flags = Flags(folder)
    model = shard(decoder(), reshard_after_forward=True)
    engine = headrace.attach(model)
    assert engine.report is None
    with engine.minibatch(tokens=total, plan=3):
        if rank == 1:
            flags.set("idle")
        else:
            flags.wait("idle")
            time.sleep(0.5)
            for ids in data:
                engine.backward(loss_sum(model, ids))
    minibatch = engine.report.as_dict()
    with engine.evaluation(), torch.no_grad():
        model(data[0][None])
    events = engine.timeline()
    assert engine.timeline() == []
    engine.detach()
    return {"minibatch": minibatch, "evaluation": engine.report.as_dict(), "events": events}


def test_reports_count_bytes_and_waiting(pools: RankPools, tmp_path: Path) -> None:
    busy, idle = pools.run(2, reports, tmp_path)
    json.dumps([busy, idle])
    whole = padded_bytes(2)
    assert busy["minibatch"]["gather_bytes"] == len(data) * 2 * whole
    assert busy["minibatch"]["push_bytes"] == len(data) * whole
    assert idle["minibatch"]["gather_bytes"] == idle["minibatch"]["push_bytes"] == 0
    for report in (busy, idle):
        assert report["minibatch"]["publish_bytes"] == whole // 2
        assert report["minibatch"]["loss"] == busy["minibatch"]["loss"] > 0
        assert report["minibatch"]["tokens"] == total
        assert report["minibatch"]["arena_bytes"] >= 2 * (whole // 2)  # shards and accumulators
        assert (report["minibatch"]["epoch"], report["evaluation"]["epoch"]) == (1, 2)
        assert report["evaluation"]["kind"] == "evaluation"
        assert report["evaluation"]["loss"] is None
        assert report["evaluation"]["gather_bytes"] == whole
    assert busy["minibatch"]["microbatches"] == len(data)
    assert idle["minibatch"]["microbatches"] == 0
    assert idle["minibatch"]["wait_ms"] >= 250  # for rank 0's compute, in settle
    assert idle["minibatch"]["elapsed_ms"] >= idle["minibatch"]["wait_ms"]


def with_and_without_a_plan(rank: int, world: int) -> list[int | None]:
    model = shard(decoder())
    engine = headrace.attach(model)
    ids = [list(range(1, 10)), [1, 2, 3]]
    loader = headrace.data.minibatches(ids, world, 5, rank=rank, oversize="truncate")
    lost = []
    for minibatch in loader:
        for plan in (minibatch, minibatch.plan, 0):
            with engine.minibatch(tokens=minibatch.global_tokens, plan=plan):
                pass
            lost.append(engine.report.tokens_lost)
    engine.detach()
    return lost


def test_reports_say_what_the_plan_lost(pools: RankPools) -> None:
    assert pools.run(2, with_and_without_a_plan) == [[4, 4, None]] * 2


def test_the_timeline_lies_inside_its_brackets(pools: RankPools, tmp_path: Path) -> None:
    busy, idle = pools.run(2, reports, tmp_path)
    for rank, events in enumerate((busy["events"], idle["events"])):
        brackets = [event for event in events if event["name"] in ("minibatch", "evaluation")]
        inner = [event for event in events if event not in brackets]
        assert [bracket["epoch"] for bracket in brackets] == [1, 2]
        assert {event["name"] for event in inner} >= {"publish", "gather", "settle"}
        for event in inner:
            assert event["rank"] == rank
            assert event["end_ns"] >= event["begin_ns"]
            assert event["end_ns"] - event["begin_ns"] >= event["waited_ns"] >= 0
            assert any(
                b["begin_ns"] <= event["begin_ns"] <= event["end_ns"] <= b["end_ns"]
                for b in brackets
            )
    gathers = [event for event in busy["events"] if event["name"] == "gather"]
    assert sum(event["bytes"] for event in gathers) == (2 * len(data) + 1) * padded_bytes(2)
    assert {event["group"] for event in gathers} == {"root", "blocks.0", "blocks.1", "blocks.2"}


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def many_steps(rank: int, world: int) -> tuple[int, int]:
    """Growth of resident memory and of open descriptors over 200 steps after a warm-up."""
    model = shard(decoder())
    engine = headrace.attach(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def steps(count: int) -> None:
        for i in range(count):
            with engine.minibatch(tokens=total):
                if i % world == rank:
                    engine.backward(loss_sum(model, data[i % 4]))
            optimizer.step()
            optimizer.zero_grad()
            if i % 10 == 0:
                with engine.evaluation(), torch.no_grad():
                    model(data[0][None])

    steps(40)
    engine.timeline()
    gc.collect()
    memory, descriptors = resident_bytes(), len(os.listdir("/proc/self/fd"))
    steps(200)
    engine.timeline()
    gc.collect()
    grown = resident_bytes() - memory, len(os.listdir("/proc/self/fd")) - descriptors
    engine.detach()
    return grown


def test_nothing_grows_over_two_hundred_steps(pools: RankPools) -> None:
    for memory, descriptors in pools.run(2, many_steps):
        assert memory < 8 << 20
        assert descriptors == 0


def threads(most: int) -> int:
    """Once there are no more than `most`: one that has ended is listed a little longer."""
    limit = time.monotonic() + 10
    while (found := len(os.listdir("/proc/self/task"))) > most and time.monotonic() < limit:
        time.sleep(0.01)
    return found


def attach_and_detach(rank: int, world: int) -> tuple[int, int]:
    def once() -> None:
        model = shard(decoder())
        engine = headrace.attach(model)
        with engine.minibatch(tokens=total):
            engine.backward(loss_sum(model, data[rank]))
        engine.detach()

    once()
    before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    for _ in range(5):
        once()
    gc.collect()
    after = len(os.listdir("/proc/self/fd")), threads(before[1])
    return after[0] - before[0], max(0, after[1] - before[1])


def test_detach_leaves_no_descriptor_and_no_thread(pools: RankPools) -> None:
    assert pools.run(2, attach_and_detach) == [(0, 0), (0, 0)]
