"""Gradients over several minibatches, the optimizers that use them, and hooks on them."""

from collections.abc import Callable

import headrace
import pytest
import torch
import torch.nn as nn
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    samples,
    shard,
    tokens_of,
)
from support.ranks import RankPools

with_worker_threads = True

data = samples(7)
total = tokens_of(data)


def accumulate(rank: int, world: int) -> None:
    """Three minibatches before one step add up; zero_grad(set_to_none=False) doubles nothing."""
    model = shard(decoder())
    engine = headrace.attach(model)
    for _ in range(3):
        with engine.minibatch(tokens=total):
            for ids in data[rank::world]:
                engine.backward(loss_sum(model, ids))
    expected = reference(decoder(), data * 3, total)
    assert_same_gradients(full_gradients(model), expected)
    model.zero_grad(set_to_none=False)
    held = {name: param.grad for name, param in model.named_parameters()}
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    for name, param in model.named_parameters():
        assert param.grad is held[name]  # added in place
    snapshot = full_gradients(model)
    with engine.minibatch(tokens=total):  # nothing of the engine's memory is aliased by .grad
        assert_local_equal(model, held)
    assert_same_gradients(full_gradients(model), snapshot, relative=0.0)
    engine.detach()


def assert_local_equal(model: nn.Module, held: dict[str, torch.Tensor]) -> None:
    before = {name: grad.to_local().clone() for name, grad in held.items()}
    for name, param in model.named_parameters():
        assert torch.equal(param.grad.to_local(), before[name])


def test_gradients_accumulate_over_minibatches_and_alias_nothing(pools: RankPools) -> None:
    pools.run(2, accumulate)


def without_sync(rank: int, world: int) -> int:
    """Accumulating unsharded pushes once a minibatch; the last backward synchronises."""
    model = shard(decoder())
    engine = headrace.attach(model)
    mine = data[rank::world]
    with engine.minibatch(tokens=total):
        for i, ids in enumerate(mine):
            model.set_requires_gradient_sync(i == len(mine) - 1)
            engine.backward(loss_sum(model, ids))
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()
    return engine.report.pushes


def test_accumulation_without_sync_pushes_once(pools: RankPools) -> None:
    assert pools.run(2, without_sync) == [4, 4]  # one a group


def last_backward_flags(rank: int, world: int) -> None:
    """set_is_last_backward falls on another microbatch on each rank, or on none."""
    model = shard(decoder())
    engine = headrace.attach(model)
    mine = [ids for i, ids in enumerate(data) if min(i // 4, world - 1) == rank]
    for repeat in range(2):
        with engine.minibatch(tokens=total):
            for i, ids in enumerate(mine):
                model.set_is_last_backward(repeat == 0 and i == len(mine) - 1)
                engine.backward(loss_sum(model, ids))
        assert model._get_fsdp_state()._comm_ctx.post_forward_order == []
    assert_same_gradients(full_gradients(model), reference(decoder(), data * 2, total))
    engine.detach()


def test_last_backward_may_fall_anywhere(pools: RankPools) -> None:
    pools.run(2, last_backward_flags)


def several_optimizers(rank: int, world: int) -> None:
    def train(model: nn.Module, minibatch: Callable[[], None]) -> None:
        optimizers = [
            torch.optim.SGD(model.blocks.parameters(), lr=0.1, momentum=0.9),
            torch.optim.AdamW([model.embed.weight, model.scale], lr=0.01),
            torch.optim.Adam(model.head.parameters(), lr=0.01, foreach=False),
        ]
        for _ in range(3):
            minibatch()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    model = shard(decoder())
    engine = headrace.attach(model)

    def ours() -> None:
        with engine.minibatch(tokens=total):
            if rank == 0:
                for ids in data:
                    engine.backward(loss_sum(model, ids))

    train(model, ours)
    engine.detach()
    plain = decoder()

    def theirs() -> None:
        (sum(loss_sum(plain, ids) for ids in data) / total).backward()

    train(plain, theirs)
    for (name, got), want in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.full_tensor(), want, rtol=1e-3, atol=1e-5, msg=name)


def test_several_optimizers(pools: RankPools) -> None:
    pools.run(2, several_optimizers)


def clipping(rank: int, world: int) -> float:
    """Gradients are present on all ranks alike, so clip_grad_norm_'s collectives match."""
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=total):
        if rank == world - 1:
            for ids in data:
                engine.backward(loss_sum(model, ids))
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    engine.detach()
    return norm.full_tensor().item()


def test_gradient_clipping_sees_the_norm_of_the_whole_gradient(pools: RankPools) -> None:
    norms = pools.run(3, clipping)
    expected = reference(decoder(), data, total)
    exact = torch.cat([grad.flatten() for grad in expected.values()]).norm().item()
    assert norms == pytest.approx([exact] * 3, rel=1e-5)


def optimizer_in_backward(rank: int, world: int) -> None:
    """Post-accumulate hooks run once a parameter and minibatch, in group order, and may step."""
    model = shard(decoder())
    names = {param: name for name, param in model.named_parameters()}
    calls: list[str] = []
    optimizers = {param: torch.optim.SGD([param], lr=0.5) for param in model.parameters()}

    def step(param: torch.Tensor) -> None:
        calls.append(names[param])
        optimizers[param].step()
        optimizers[param].zero_grad()

    for param in model.parameters():
        param.register_post_accumulate_grad_hook(step)
    engine = headrace.attach(model)
    for _ in range(2):
        with engine.minibatch(tokens=total):
            for ids in data[rank::world]:
                engine.backward(loss_sum(model, ids))
    engine.detach()
    groups = model._get_fsdp_state()._state_ctx.all_states
    order = [names[p.sharded_param] for s in groups for p in s._fsdp_param_group.fsdp_params]
    assert calls == order * 2
    plain = decoder()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for _ in range(2):
        (sum(loss_sum(plain, ids) for ids in data) / total).backward()
        optimizer.step()
        optimizer.zero_grad()
    for (name, got), want in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.full_tensor(), want, rtol=1e-4, atol=1e-5, msg=name)


def test_optimizer_in_backward_through_post_accumulate_hooks(pools: RankPools) -> None:
    pools.run(2, optimizer_in_backward)


def all_reduce_hook(rank: int, world: int) -> None:
    model = shard(decoder())
    seen: list[int] = []

    def double(packed: torch.Tensor) -> None:
        seen.append(packed.numel())
        packed.mul_(2)

    model.blocks[1].set_all_reduce_hook(double)
    engine = headrace.attach(model)
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))
    expected = reference(decoder(), data, total)
    for name, grad in expected.items():
        if name.startswith("blocks.1."):
            grad.mul_(2)
    assert_same_gradients(full_gradients(model), expected)
    padded = sum(
        -(-param.shape[0] // world) * param[0].numel() for param in decoder().blocks[1].parameters()
    )
    assert seen == [padded]
    engine.detach()


def test_all_reduce_hook_runs_once_over_the_packed_group(pools: RankPools) -> None:
    pools.run(2, all_reduce_hook)
