"""Shards that live in the arena are ordinary tensors to state dicts, copies and checkpoints,
whatever the loop does to engine and model."""

import copy
import gc
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import headrace
import pytest
import torch
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from headrace.errors import OperationError
from support.faults import (
    held_by,
)
from support.lockstep import (
    Loop,
    assert_equal,
    data,
    full_parameters,
    largest_difference,
    make,
    train,
)
from support.models import (
    decoder,
    loss_sum,
    shard,
)
from support.ranks import RankPools
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)


def averaged_weights(rank: int, world: int) -> None:
    """An exponential moving average kept as a deepcopy of the state dict, swapped in and out."""

    def run(mode: str | None) -> dict[str, torch.Tensor]:
        model = make("fp32")
        engine = headrace.attach(model, mode=mode) if mode else None
        average = copy.deepcopy(get_model_state_dict(model))
        for _ in range(3):
            train(model, rank, world, 2)
            with torch.no_grad():
                for name, value in get_model_state_dict(model).items():
                    average[name].lerp_(value, 0.5)
            kept = copy.deepcopy(get_model_state_dict(model))
            model.load_state_dict(average)
            with torch.no_grad():
                loss_sum(model, data[0])
            model.load_state_dict(kept)
        result = {n: v.full_tensor().clone() for n, v in average.items()}
        if engine:
            engine.detach()
        return result

    assert largest_difference(run(None), run("lockstep")) == 0.0


def test_averaged_weights(pools: RankPools) -> None:
    pools.run(2, averaged_weights)


def checkpointed(rank: int, world: int, folder: str, asynchronous: bool) -> None:
    def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        weights, optim = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": optim}

    def part(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for step in range(first, last):
            loss_sum(model, data[step * world + rank]).backward()
            optimizer.step()
            optimizer.zero_grad()

    unbroken = make("fp32")
    optimizer = torch.optim.AdamW(unbroken.parameters(), lr=1e-2)
    engine = headrace.attach(unbroken, mode="lockstep")
    part(unbroken, optimizer, 0, 3)
    if asynchronous:
        saving = dcp.async_save(state(unbroken, optimizer), checkpoint_id=folder)
        part(unbroken, optimizer, 3, 6)  # while it is being written
        saving.result()
    else:
        dcp.save(state(unbroken, optimizer), checkpoint_id=folder)
        part(unbroken, optimizer, 3, 6)
    expected = full_parameters(unbroken)
    engine.detach()

    resumed = shard(decoder(seed=9))
    optimizer = torch.optim.AdamW(resumed.parameters(), lr=1e-2)
    engine = headrace.attach(resumed, mode="lockstep")
    loaded = state(resumed, optimizer)
    dcp.load(loaded, checkpoint_id=folder)
    set_state_dict(
        resumed, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"]
    )
    part(resumed, optimizer, 3, 6)
    assert largest_difference(expected, full_parameters(resumed)) == 0.0
    engine.detach()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_checkpoint_and_resume(pools: RankPools, tmp_path: Path, asynchronous: bool) -> None:
    pools.run(2, checkpointed, str(tmp_path / "checkpoint"), asynchronous)


def shards_after_detach(rank: int, world: int) -> None:
    model = make("fp32")
    engine = headrace.attach(model, mode="lockstep")
    addresses = [p._local_tensor.data_ptr() for p in model.parameters() if p._local_tensor.numel()]
    assert all(p._local_tensor.storage_offset() == 0 for p in model.parameters())
    train(model, rank, world, 2)
    assert addresses == [
        p._local_tensor.data_ptr() for p in model.parameters() if p._local_tensor.numel()
    ]
    before = full_parameters(model)
    engine.detach()
    del engine
    for param in model.parameters():
        assert param._local_tensor.data_ptr() not in addresses
    assert largest_difference(before, full_parameters(model)) == 0.0
    train(model, rank, world, 1)  # stock


def test_shards_live_in_the_arena_until_detach(pools: RankPools) -> None:
    pools.run(2, shards_after_detach)


# -- engines that go, come and follow each other


@contextmanager
def dropped_engine_warns() -> Iterator[None]:
    with pytest.warns(ResourceWarning, match="dropped"):
        yield
        gc.collect()


def dropped(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model, mode="lockstep")
    Loop(model, rank, world).steps(1)
    local = model.blocks[0].up.weight._local_tensor
    before = local.clone()
    with dropped_engine_warns():
        del engine
    assert torch.equal(local, before)  # a reference to the arena outlives the engine
    local.add_(1)
    assert torch.equal(model.blocks[0].up.weight._local_tensor, before)
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(0.5)
    Loop(model, rank, world).steps(1)  # stock
    engine = headrace.attach(model, mode="lockstep")
    Loop(model, rank, world).steps(1)
    engine.detach()


def test_a_dropped_engine_leaves_a_model_that_can_be_attached_again(pools: RankPools) -> None:
    pools.run(2, dropped)


def dropped_with_its_model(rank: int, world: int) -> int:
    def once() -> None:
        model = shard(decoder())
        engine = headrace.attach(model, mode="lockstep")
        Loop(model, rank, world).steps(1)
        with dropped_engine_warns():
            del engine, model

    once()
    gc.collect()
    before = set(held_by(os.getpid()))
    for _ in range(3):
        once()
    gc.collect()
    return len(set(held_by(os.getpid())) - before)


def test_a_dropped_engine_and_model_leave_nothing(pools: RankPools) -> None:
    assert pools.run(2, dropped_with_its_model) == [0, 0]


def attach_again_and_again(rank: int, world: int) -> None:
    def run(modes: list[str | None]) -> dict[str, torch.Tensor]:
        model = shard(decoder())
        loop = Loop(model, rank, world)
        for mode in modes:
            engine = headrace.attach(model, mode=mode) if mode else None
            if mode == "on-demand":
                for _ in range(2):
                    with engine.minibatch():
                        loop.microbatch()
                    loop.end_step()
            else:
                loop.steps(2)
            if engine:
                engine.detach()
                engine.detach()
                with pytest.raises(OperationError, match="detached"):
                    engine.minibatch().__enter__()
        return full_parameters(model)

    assert_equal(run(["lockstep", "on-demand", "auto", "lockstep", None]), run([None] * 5))


def test_modes_follow_each_other_in_one_process(pools: RankPools) -> None:
    pools.run(2, attach_again_and_again)


def copies(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model, mode="lockstep")
    loop = Loop(model, rank, world)
    loop.steps(1)
    kept = full_parameters(model)
    copied = {n: copy.deepcopy(p) for n, p in model.named_parameters()}
    arena = {p._local_tensor.data_ptr() for p in model.parameters() if p._local_tensor.numel()}
    for param in copied.values():
        assert param._local_tensor.data_ptr() not in arena
        with torch.no_grad():
            param.zero_()
    assert_equal(full_parameters(model), kept)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    loop.steps(1)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert_equal({n: p.full_tensor() for n, p in loaded.items()}, kept)
    model.load_state_dict(loaded)
    assert_equal(full_parameters(model), kept)
    assert arena == {
        p._local_tensor.data_ptr() for p in model.parameters() if p._local_tensor.numel()
    }
    engine.detach()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(1)
    assert_equal({n: p.full_tensor() for n, p in loaded.items()}, kept)


def test_copies_and_saved_state_are_whole_and_apart(pools: RankPools) -> None:
    pools.run(2, copies)


def converted(rank: int, world: int, mode: str) -> str:
    model = shard(decoder())
    engine = headrace.attach(model, mode=mode)
    Loop(model, rank, world).steps(1)
    model.to(torch.bfloat16)
    with pytest.raises(OperationError) as caught:
        loss_sum(model, data[rank]).backward()
    engine.detach()
    return str(caught.value)


@pytest.mark.parametrize("mode", ["lockstep", "auto"])
def test_a_model_converted_after_attach_is_a_clear_error(pools: RankPools, mode: str) -> None:
    for text in pools.run(2, converted, mode):
        assert "convert the model before fully_shard" in text


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def many_steps(rank: int, world: int, residence: str) -> tuple[int, int]:
    """Growth of resident memory and of open descriptors over 200 steps after a warm-up."""
    model = shard(decoder())
    engine = headrace.attach(model, mode="lockstep", residence=residence)
    loop = Loop(model, rank, world)
    loop.steps(40)
    engine.timeline()
    gc.collect()
    memory, descriptors = resident_bytes(), len(os.listdir("/proc/self/fd"))
    loop.steps(200)
    engine.timeline()
    gc.collect()
    grown = resident_bytes() - memory, len(os.listdir("/proc/self/fd")) - descriptors
    engine.detach()
    return grown


@pytest.mark.parametrize("residence", ["in-place", "slot-reuse"])
def test_nothing_grows_over_two_hundred_steps(pools: RankPools, residence: str) -> None:
    for memory, descriptors in pools.run(2, many_steps, residence):
        assert memory < 8 << 20
        assert descriptors == 0
