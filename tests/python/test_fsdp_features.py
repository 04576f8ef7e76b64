"""What FSDP2 users rely on keeps working inside the brackets."""

import warnings
from collections.abc import Callable

import headrace
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.utils.checkpoint as checkpointing
from headrace.errors import OperationError
from support.models import (
    Block,
    Decoder,
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    samples,
    shard,
    tokens_of,
    unsharded_groups,
)
from support.ranks import RankPools
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

with_worker_threads = True

data = samples(7)
total = tokens_of(data)


def train_and_compare(
    model: nn.Module,
    rank: int,
    world: int,
    expected: Callable[[], dict[str, torch.Tensor | None]] | None = None,
) -> headrace.Engine:
    """One minibatch, rank 0 with most of the samples, against one process; leaves the engine
    attached."""
    engine = headrace.attach(model)
    with engine.minibatch(tokens=total):
        for i, ids in enumerate(data):
            if min(i // 4, world - 1) == rank:
                engine.backward(loss_sum(model, ids))
    assert unsharded_groups(model) == []
    want = expected() if expected else reference(decoder(), data, total)
    assert_same_gradients(full_gradients(model), want)
    return engine


# -- checkpointing and resharding


def with_checkpointing(rank: int, world: int, reentrant: bool, wrapper: bool) -> None:
    model = decoder()
    if wrapper:
        for i, block in enumerate(model.blocks):
            model.blocks[i] = checkpoint_wrapper(block)
        shard(model)
    else:
        shard(model)

        def forward(ids: torch.Tensor) -> torch.Tensor:
            x = model.embed(ids)
            for block in model.blocks:
                x = checkpointing.checkpoint(block, x, use_reentrant=reentrant)
            return model.head(x * model.scale)

        model.forward = forward
    train_and_compare(model, rank, world).detach()


@pytest.mark.parametrize(("reentrant", "wrapper"), [(True, False), (False, False), (False, True)])
def test_activation_checkpointing(pools: RankPools, reentrant: bool, wrapper: bool) -> None:
    pools.run(2, with_checkpointing, reentrant, wrapper)


def with_reshard(rank: int, world: int, reshard: bool | int | None) -> int:
    model = shard(decoder(), reshard_after_forward=reshard)
    engine = train_and_compare(model, rank, world)
    engine.detach()
    return engine.report.gathers


def test_reshard_after_forward_decides_how_often_groups_are_gathered(pools: RankPools) -> None:
    with_true = pools.run(2, with_reshard, True)
    with_false = pools.run(2, with_reshard, False)
    assert with_true[0] == 4 * 4 * 2  # 4 samples, 4 groups, forward and backward
    assert with_false[0] == 4 * 4


def test_integer_reshard_gathers_from_the_published_shards(pools: RankPools) -> None:
    # Rank 1 runs no third sample: a collective over the smaller mesh would hang.
    assert pools.run(4, with_reshard, 2)[0] == pools.run(4, with_reshard, True)[0]


def integer_reshard_comes_back(rank: int, world: int) -> None:
    model = shard(decoder(), reshard_after_forward=2)
    groups = [block._get_fsdp_state()._fsdp_param_group for block in model.blocks]
    before = [group.post_forward_mesh_info for group in groups]
    engine = headrace.attach(model)
    assert all(group.post_forward_mesh_info is group.mesh_info for group in groups)
    engine.detach()
    assert [group.post_forward_mesh_info for group in groups] == before
    loss_sum(model, data[0]).backward()  # stock, all ranks alike
    for param in model.parameters():
        assert param.grad is not None


def test_detach_gives_integer_reshard_back(pools: RankPools) -> None:
    pools.run(4, integer_reshard_comes_back)


def with_explicit_prefetch(rank: int, world: int) -> None:
    model = shard(decoder())
    blocks = list(model.blocks)
    blocks[0].set_modules_to_forward_prefetch([blocks[1], blocks[2]])
    blocks[2].set_modules_to_backward_prefetch([blocks[1], blocks[0]])
    engine = train_and_compare(model, rank, world)
    # A prefetch that nobody consumes does not outlive its bracket, and without worker threads it
    # moves nothing.
    gathered = engine.report.gathers
    with engine.evaluation(), torch.no_grad():
        model.blocks[0].unshard(async_op=True)
    assert engine.report.gathers == int(engine.overlaps) and gathered > 0
    (group,) = model.blocks[0]._get_fsdp_state()._fsdp_param_groups
    landings = [output for param in group.fsdp_params for output in param.all_gather_outputs]
    assert [landing.untyped_storage().nbytes() for landing in landings] == [0] * len(landings)
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(2)
    with engine.evaluation(), torch.no_grad():
        logits = model(data[0][None])
    plain = decoder()
    with torch.no_grad():
        for param in plain.parameters():
            param.mul_(2)
        torch.testing.assert_close(logits, plain(data[0][None]))
    engine.detach()


def test_prefetches_never_outlive_the_bracket(pools: RankPools) -> None:
    pools.run(2, with_explicit_prefetch)


# -- which parameters take part


def with_tied_weights(rank: int, world: int) -> None:
    model = shard(decoder(tied=True))
    engine = train_and_compare(
        model, rank, world, lambda: reference(decoder(tied=True), data, total)
    )
    assert model.head.weight is model.embed.weight
    engine.detach()


def test_tied_weights(pools: RankPools) -> None:
    pools.run(2, with_tied_weights)


def frozen(model: Decoder) -> Decoder:
    model.embed.requires_grad_(False)
    model.blocks[1].requires_grad_(False)
    model.blocks[0].up.weight.requires_grad_(False)
    return model


def with_frozen_parameters(rank: int, world: int) -> None:
    model = shard(frozen(decoder()))
    engine = train_and_compare(
        model, rank, world, lambda: reference(frozen(decoder()), data, total)
    )
    first = engine.report.publish_bytes
    with engine.evaluation():
        pass
    second = engine.report.publish_bytes
    assert 0 < second < first  # frozen shards stay published
    with torch.no_grad():
        model.embed.weight.add_(1)  # changed: goes out again
    with engine.evaluation(), torch.no_grad():
        got = model(data[0][None])
    third = engine.report.publish_bytes
    assert second < third < first
    engine.republish()
    with engine.evaluation():
        pass
    assert engine.report.publish_bytes == first
    plain = decoder()
    with torch.no_grad():
        plain.embed.weight.add_(1)
        torch.testing.assert_close(got, plain(data[0][None]))
    engine.detach()


def test_frozen_parameters_are_published_again_only_after_a_change(pools: RankPools) -> None:
    pools.run(2, with_frozen_parameters)


def thawing(rank: int, world: int) -> None:
    """requires_grad may change between brackets, both ways."""
    model = shard(frozen(decoder()))
    engine = train_and_compare(
        model, rank, world, lambda: reference(frozen(decoder()), data, total)
    )
    model.zero_grad()
    model.requires_grad_(True)
    model.head.requires_grad_(False)
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))
    thawed = decoder()
    thawed.head.requires_grad_(False)
    assert_same_gradients(full_gradients(model), reference(thawed, data, total))
    engine.detach()


def test_requires_grad_may_change_between_brackets(pools: RankPools) -> None:
    pools.run(2, thawing)


class Branching(nn.Module):
    """Uses expert i for samples of kind i, and never the idle one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.experts = nn.ModuleList([nn.Linear(5, 3), nn.Linear(5, 3), nn.Linear(5, 3)])
        self.idle = nn.Linear(4, 4)
        self.last = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, kind: int) -> torch.Tensor:
        return self.last(self.experts[kind](self.first(x).tanh())).sum()


def branching() -> Branching:
    torch.manual_seed(5)
    return Branching()


def with_unused_parameters(rank: int, world: int, grouped: bool) -> None:
    """Rank 0 uses expert 0 then 1, rank 1 only expert 1; expert 2 and `idle` are used by none."""
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    plan = [(0, inputs[0], 0), (0, inputs[1], 1), (1, inputs[2], 1)]
    model = branching()
    if grouped:
        for expert in model.experts:
            fully_shard(expert)
    fully_shard(model)
    engine = headrace.attach(model)
    for _ in range(2):
        with engine.minibatch(samples=3):
            for owner, x, kind in plan:
                if owner % world == rank:
                    engine.backward(model(x, kind))
    plain = branching().double()
    for _ in range(2):
        for _, x, kind in plan:
            (plain(x.double(), kind) / 3).backward()
    assert_same_gradients(
        full_gradients(model), {name: p.grad for name, p in plain.named_parameters()}
    )
    assert model.idle.weight.grad is None and model.experts[2].weight.grad is None
    engine.detach()


@pytest.mark.parametrize("grouped", [False, True])
def test_parameters_unused_in_some_microbatch_or_on_some_rank(
    pools: RankPools, grouped: bool
) -> None:
    pools.run(2, with_unused_parameters, grouped)


def with_zeros_for_unused(rank: int, world: int) -> None:
    """set_reduce_scatter_unused_params keeps its meaning: zero gradients instead of none."""
    model = fully_shard(branching())
    model.set_reduce_scatter_unused_params(True)
    engine = headrace.attach(model)
    with engine.minibatch(samples=1):
        if rank == 0:
            engine.backward(model(torch.ones(4), 0))
    assert model.idle.weight.grad.to_local().abs().sum() == 0
    engine.detach()


def test_unused_parameters_get_zeros_where_fsdp2_was_told_so(pools: RankPools) -> None:
    pools.run(2, with_zeros_for_unused)


# -- compile, several models


def compiled_blocks(rank: int, world: int) -> None:
    model = decoder()
    for block in model.blocks:
        block.compile(backend="aot_eager", dynamic=True)
    train_and_compare(shard(model), rank, world).detach()
    model = shard(decoder())
    for i, block in enumerate(model.blocks):
        model.blocks[i] = torch.compile(block, backend="aot_eager", dynamic=True)
    train_and_compare(model, rank, world).detach()


def test_compiled_blocks(pools: RankPools) -> None:
    pools.run(2, compiled_blocks, limit=110)


def three_models(rank: int, world: int) -> None:
    """Policy and critic attached with nested brackets, a frozen reference not attached at all."""
    policy, critic = shard(decoder(1)), shard(decoder(2))
    stock = shard(decoder(3))
    a, b = headrace.attach(policy), headrace.attach(critic)
    with a.minibatch(tokens=total), b.minibatch(tokens=total):
        with torch.no_grad():
            stock(data[0][None])  # its collectives: every rank once
        for ids in data[rank::world]:
            a.backward(loss_sum(policy, ids))
            if rank == 0:
                b.backward(loss_sum(critic, ids))
        if rank == 0:
            for ids in data[1::world]:
                b.backward(loss_sum(critic, ids))
    assert_same_gradients(full_gradients(policy), reference(decoder(1), data, total))
    assert_same_gradients(full_gradients(critic), reference(decoder(2), data, total))
    loss_sum(stock, data[0]).backward()
    assert_same_gradients(full_gradients(stock), reference(decoder(3), data[:1], 1))
    a.detach()
    with b.evaluation(), torch.no_grad():  # the other stays attached
        critic(data[0][None])
    loss_sum(policy, data[0]).backward()  # and this one is stock again
    b.detach()


def test_two_attached_models_and_one_that_is_not(pools: RankPools) -> None:
    pools.run(2, three_models)


def inference_first(rank: int, world: int) -> None:
    """A first forward under inference_mode leaves nothing behind that training trips over."""
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.evaluation(), torch.inference_mode():
        model(data[0][None])
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()


def test_first_forward_under_inference_mode(pools: RankPools) -> None:
    pools.run(2, inference_first)


def sparse_embedding(rank: int, world: int) -> str:
    model = decoder()
    model.embed = nn.Embedding(13, 7, sparse=True)
    shard(model)
    engine = headrace.attach(model)
    message = ""
    try:
        with engine.minibatch(tokens=1):
            engine.backward(loss_sum(model, data[0]))
    except (OperationError, headrace.errors.PeerError) as error:
        message = str(error)
    engine.detach()
    return message


def test_a_sparse_gradient_is_refused_by_name(pools: RankPools) -> None:
    assert any("embed.weight" in message for message in pools.run(2, sparse_embedding))


class Grouped(nn.Module):
    """norm and head share a group; the head is called chunk by chunk, outside the main forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(13, 7)
        self.block = Block(7)
        self.norm = nn.LayerNorm(7)
        self.head = nn.Linear(7, 13)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.block(self.embed(ids)))


def grouped() -> Grouped:
    torch.manual_seed(9)
    return Grouped()


def chunked_loss(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    hidden = model(ids[:-1])
    losses = [
        nn.functional.cross_entropy(model.head(chunk), target, reduction="sum")
        for chunk, target in zip(hidden.split(3), ids[1:].split(3), strict=True)
    ]
    return torch.stack(losses).sum()


def grouped_modules(rank: int, world: int) -> None:
    model = grouped()
    fully_shard(model.block)
    fully_shard([model.norm, model.head])
    fully_shard(model)
    engine = headrace.attach(model)
    with engine.minibatch(tokens=total), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i, ids in enumerate(data):
            if min(i // 4, world - 1) == rank:
                engine.backward(chunked_loss(model, ids))
    assert_same_gradients(full_gradients(model), reference(grouped(), data, total, chunked_loss))
    engine.detach()
    assert dist.is_initialized()


def test_chunked_loss_over_a_group_of_modules(pools: RankPools) -> None:
    pools.run(2, grouped_modules)
