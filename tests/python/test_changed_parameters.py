"""Parameters, gradients and options that change between brackets."""

import contextlib
from pathlib import Path

import headrace
import pytest
import torch
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from headrace.errors import OperationError, SessionError
from support.brackets import assert_still_right, caught, data, step, total
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    shard,
)
from support.ranks import RankPools
from torch.distributed.tensor import DTensor, Replicate

with_worker_threads = True


def state_dicts(rank: int, world: int, folder: str) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    step(engine, model, rank, world)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.5)
    assert_still_right(engine, model, rank, world)

    def assert_restored() -> None:
        for name, param in model.named_parameters():
            assert torch.equal(param.to_local(), saved[name].to_local()), name
        assert_still_right(engine, model, rank, world)

    model.load_state_dict(saved)
    assert_restored()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.5)
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    assert_restored()
    model.load_state_dict({k: v.clone() * 2 for k, v in saved.items()}, assign=True)
    assert_still_right(engine, model, rank, world)
    model.load_state_dict(saved, assign=True)
    assert_restored()
    engine.detach()


def test_state_dicts_plain_assigned_and_distributed_checkpoint(
    pools: RankPools, tmp_path: Path
) -> None:
    pools.run(2, state_dicts, str(tmp_path), limit=90)


def state_dict_in_bracket(rank: int, world: int) -> None:
    """Saving between a forward and its backward sees shards, and does not disturb the minibatch."""
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))
            for name, value in model.state_dict().items():
                assert value.placements, name
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()


def test_a_state_dict_may_be_taken_inside_a_bracket(pools: RankPools) -> None:
    pools.run(2, state_dict_in_bracket)


def moved_and_replaced(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    step(engine, model, rank, world)
    model._apply(lambda tensor: tensor * 3)  # new tensors, as .to() makes them
    assert_still_right(engine, model, rank, world)
    model.to(torch.bfloat16)
    with pytest.raises(OperationError, match=r"'.*weight'.*float32.* now torch.bfloat16"):
        step(engine, model, rank, world)
    model.to(torch.float32)
    assert_still_right(engine, model, rank, world)
    kept = model.head.weight
    model.head.weight = nn.Parameter(torch.zeros(13, 7))
    with pytest.raises(OperationError, match=r"'head.weight' was replaced"):
        step(engine, model, rank, world)
    model.head.weight = kept
    assert_still_right(engine, model, rank, world)
    engine.detach()


def test_moved_parameters_work_and_replaced_ones_are_named(pools: RankPools) -> None:
    pools.run(2, moved_and_replaced)


def options_set_later(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model)
    model.set_gradient_divide_factor(2.0)
    with pytest.raises(OperationError, match=r"set_gradient_divide_factor\(2.0\)"):
        step(engine, model, rank, world)
    with contextlib.suppress(SessionError):
        engine.detach()


def test_an_unsupported_option_set_after_attach_is_found_at_the_bracket(pools: RankPools) -> None:
    pools.run(1, options_set_later)


def gradient_replaced(rank: int, world: int) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)
    with torch.no_grad():
        model.head.weight.grad = torch.zeros_like(model.head.weight)
    step(engine, model, rank, world)
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()
    return "", "", -1


def test_a_gradient_that_the_loop_made_is_added_to(pools: RankPools) -> None:
    pools.run(2, gradient_replaced)


def gradient_placed_otherwise(rank: int, world: int) -> tuple[str, str, int]:
    model = shard(decoder())
    engine = headrace.attach(model)
    weight = model.head.weight
    weight.grad = DTensor.from_local(torch.zeros(13, 7), weight.device_mesh, [Replicate()])
    found = caught(lambda: step(engine, model, rank, world))
    engine.detach()
    return found


def test_a_gradient_placed_unlike_its_parameter_is_refused_by_name(pools: RankPools) -> None:
    for kind, text, _ in pools.run(2, gradient_placed_otherwise):
        assert kind in ("OperationError", "PeerError")
        assert "head.weight" in text and "Replicate" in text
