"""attach meets every rank, checks the model, and says on every rank why it cannot be carried."""

import subprocess
import sys
from collections.abc import Callable

import headrace
import pytest
import torch
import torch.distributed as dist
import torch.nn as nn
from headrace import fsdp2
from headrace.errors import OperationError, PeerError
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
from support.ranks import RankPools, Ranks
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

data = samples(4)
total = tokens_of(data)


def assert_works(engine: headrace.Engine, model: nn.Module, rank: int, world: int) -> None:
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(model, ids))
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))


# -- models that on-demand mode does not carry


def not_fsdp() -> nn.Module:
    return decoder()


def inner_module() -> nn.Module:
    model = shard(decoder())
    model._get_fsdp_state()._lazy_init()
    return model.blocks[0]


def inner_used_first() -> nn.Module:
    model = shard(decoder())
    model.blocks[0](torch.zeros(1, 7))
    return model


def tensor_parallel() -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("dp", "tp"))
    model = decoder()
    weight = distribute_tensor(model.head.weight.data, mesh["tp"], [Replicate()])
    model.head.weight = nn.Parameter(weight)
    return shard(model, mesh=mesh["dp"])


def second_dimension() -> nn.Module:
    model = nn.Linear(2 * dist.get_world_size(), 3)
    return fully_shard(model, shard_placement_fn=lambda p: Shard(1) if p.ndim == 2 else Shard(0))


def offloaded() -> nn.Module:
    return shard(decoder(), offload_policy=CPUOffloadPolicy(pin_memory=False))


def extension() -> nn.Module:
    model = shard(decoder())
    local = model.head.weight._local_tensor
    local.fsdp_pre_all_gather = local.fsdp_post_all_gather = lambda *args: None
    return model


def half() -> nn.Module:
    return shard(decoder().half())


def double() -> nn.Module:
    return shard(decoder().double())


def half_compute() -> nn.Module:
    return shard(decoder(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16))


def divide_factor() -> nn.Module:
    model = shard(decoder())
    model.blocks[2].set_gradient_divide_factor(3.0)
    return model


class OwnGather(AllGather):
    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        return dist.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


class OwnReduce(ReduceScatter):
    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        return dist.reduce_scatter_tensor(output_tensor, input_tensor, op, group, async_op)


def own_all_gather() -> nn.Module:
    model = shard(decoder())
    model.set_custom_all_gather(OwnGather())
    return model


def own_reduce_scatter() -> nn.Module:
    model = shard(decoder())
    model.set_custom_reduce_scatter(OwnReduce())
    return model


def tied_across_groups() -> nn.Module:
    model = decoder()
    model.blocks[0].up.weight = model.blocks[1].up.weight
    return shard(model)


def on_meta() -> nn.Module:
    with torch.device("meta"):
        model = decoder()
    return shard(model)


def unsynchronised() -> nn.Module:
    model = shard(decoder())
    model.set_requires_gradient_sync(False)
    loss_sum(model, data[0]).backward()
    return model


def two_meshes() -> nn.Module:
    world = dist.get_world_size()
    rows = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("a", "b"))
    model = decoder()
    fully_shard(model.blocks[0], mesh=rows["a"])
    return shard_rest(model)


def shard_rest(model: nn.Module) -> nn.Module:
    for block in model.blocks[1:]:
        fully_shard(block)
    return fully_shard(model)


def nothing_sharded() -> nn.Module:
    return fully_shard(nn.ReLU())


refusals: list[tuple[Callable[[], nn.Module], int, list[str]]] = [
    (not_fsdp, 2, ["Decoder", "fully_shard"]),
    (inner_module, 2, ["inside a larger", "root"]),
    (inner_used_first, 2, ["root"]),
    (tensor_parallel, 2, ["head.weight", "tensor parallel"]),
    (second_dimension, 2, ["'weight'", "dimension 1"]),
    (offloaded, 2, ["offload"]),
    (extension, 2, ["head.weight", "extension"]),
    (half, 2, ["float16", "bfloat16"]),
    (double, 1, ["float64"]),
    (half_compute, 2, ["computed in torch.float16"]),
    (divide_factor, 2, ["blocks.2", "set_gradient_divide_factor(3.0)"]),
    (own_all_gather, 2, ["OwnGather", "set_custom_all_gather"]),
    (own_reduce_scatter, 2, ["OwnReduce", "set_custom_reduce_scatter"]),
    (tied_across_groups, 2, ["up.weight", "same FSDP group"]),
    (on_meta, 2, ["meta"]),
    (unsynchronised, 2, ["set_requires_gradient_sync"]),
    (two_meshes, 4, ["shard mesh"]),
    (nothing_sharded, 2, ["no sharded parameter"]),
]


def refuse(rank: int, world: int, make: Callable[[], nn.Module]) -> str:
    stock = FSDPParamGroup.unshard
    with pytest.raises(OperationError) as error:
        headrace.attach(make(), bootstrap_seconds=60)
    assert FSDPParamGroup.unshard is stock
    model = shard(decoder())
    engine = headrace.attach(model)  # the ranks still meet
    assert_works(engine, model, rank, world)
    engine.detach()
    return str(error.value)


@pytest.mark.parametrize(
    ("make", "world", "words"), refusals, ids=[case[0].__name__ for case in refusals]
)
def test_a_model_that_cannot_be_carried_is_named_with_what_to_do(
    pools: RankPools, make: Callable[[], nn.Module], world: int, words: list[str]
) -> None:
    for message in pools.run(world, refuse, make):
        for word in words:
            assert word in message


def one_rank_cannot(rank: int, world: int) -> tuple[str, int]:
    model = divide_factor() if rank == 1 else shard(decoder())
    with pytest.raises(OperationError) as error:
        headrace.attach(model)
    return str(error.value), error.value.rank


def test_what_one_rank_finds_every_rank_raises(pools: RankPools) -> None:
    found = pools.run(3, one_rank_cannot)
    for rank in (0, 2):
        assert "rank 1 cannot attach" in found[rank][0] and found[rank][1] == 1
    assert all("set_gradient_divide_factor(3.0)" in text for text, _ in found)


# -- arguments


def arguments(rank: int, world: int) -> None:
    model = shard(decoder())
    with pytest.raises(OperationError, match=r"mode='both'.*on-demand"):
        headrace.attach(model, mode="both")
    with pytest.raises(OperationError, match=r"unknown setting patience.*silence_seconds"):
        headrace.attach(model, patience=3)
    with pytest.raises(OperationError, match=r"silence_seconds=-1"):
        headrace.attach(model, silence_seconds=-1)
    with pytest.raises(OperationError, match=r"trace_events=1.5"):
        headrace.attach(model, **({"trace_events": 1.5} if rank == 1 else {}))
    with pytest.raises(OperationError, match=r"group='world'"):
        headrace.attach(model, group="world" if rank == 1 else None)
    alone = [dist.new_group([r]) for r in range(world)][rank]
    with pytest.raises(OperationError, match=rf"group holds ranks \[{rank}\] and .* \[0, 1\]"):
        headrace.attach(model, group=alone)
    engine = headrace.attach(
        model, group=dist.group.WORLD, silence_seconds=50, no_progress_seconds=60, trace_events=10
    )
    with pytest.raises(OperationError, match="attached already"):
        headrace.attach(model)
    assert_works(engine, model, rank, world)
    engine.detach()
    engine.detach()


def test_arguments(pools: RankPools) -> None:
    pools.run(2, arguments)


def no_process_group(rank: int, world: int) -> None:
    with pytest.raises(OperationError, match="init_process_group"):
        headrace.attach(nn.Linear(2, 2))


def absent_peer(rank: int, world: int) -> None:
    model = shard(decoder())
    if rank != 1:
        with pytest.raises(
            PeerError, match=r"rank 0 waited 1 s .* rank\(s\) 1: call headrace.attach"
        ):
            headrace.attach(model, bootstrap_seconds=1)


def test_missing_process_group_and_missing_peer() -> None:
    with Ranks(1, process_group=False) as ranks:
        ranks.run(no_process_group)
    with Ranks(2) as ranks:
        ranks.run(absent_peer)


def different_models(rank: int, world: int) -> str:
    model = shard(decoder(width=7 if rank == 0 else 8))
    with pytest.raises(headrace.errors.HeadraceError) as error:
        headrace.attach(model, bootstrap_seconds=60)
    return str(error.value)


def test_different_models_are_refused_on_every_rank(pools: RankPools) -> None:
    for message in pools.run(2, different_models):
        assert "all ranks must agree" in message


# -- before and after


def after_a_stock_forward(rank: int, world: int) -> None:
    """The root is unsharded and orders are recorded; attach starts clean."""
    model = shard(decoder())
    model(data[0][None])
    engine = headrace.attach(model)
    assert_works(engine, model, rank, world)
    engine.detach()


def test_attach_after_stock_forwards(pools: RankPools) -> None:
    pools.run(2, after_a_stock_forward)


def on_a_subgroup(rank: int, world: int) -> None:
    """Two shard meshes of one job, each with an engine of its own."""
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("job", "shard"))["shard"]
    model = shard(decoder(), mesh=mesh)
    engine = headrace.attach(model)
    assert_works(engine, model, mesh.get_local_rank(), mesh.size())
    engine.detach()


def test_attach_on_a_subgroup_of_the_job(pools: RankPools) -> None:
    pools.run(4, on_a_subgroup)


def built_on_meta(rank: int, world: int) -> None:
    """Sharded on the meta device, then given memory and values shard by shard."""
    model = on_meta()
    model.to_empty(device="cpu")
    plain = decoder()
    for param, value in zip(model.parameters(), plain.parameters(), strict=True):
        rows = value.detach().chunk(world)
        if rank < len(rows):
            param.to_local().detach().copy_(rows[rank])
    engine = headrace.attach(model)
    assert_works(engine, model, rank, world)
    engine.detach()


def test_a_model_materialised_from_meta(pools: RankPools) -> None:
    pools.run(2, built_on_meta)


def compiled_root(rank: int, world: int) -> None:
    model = shard(decoder())
    compiled = torch.compile(model, backend="eager", dynamic=True)
    engine = headrace.attach(compiled)
    with engine.minibatch(tokens=total):
        for ids in data[rank::world]:
            engine.backward(loss_sum(compiled, ids))
    assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()


def test_attach_through_the_compile_wrapper(pools: RankPools) -> None:
    pools.run(2, compiled_root)


def restored(rank: int, world: int) -> None:
    def installed() -> tuple[object, ...]:
        return (
            FSDPParamGroup.unshard,
            FSDPParamGroup.wait_for_unshard,
            _fsdp_param_group.foreach_reduce,
        )

    stock = installed()
    first, second = shard(decoder()), shard(decoder())
    a = headrace.attach(first)
    replaced = installed()
    assert not set(stock) & set(replaced)
    b = headrace.attach(second)
    a.detach()
    assert installed() == replaced  # the other still needs them
    b.detach()
    assert installed() == stock
    for _ in range(2):
        loss_sum(first, data[0]).backward()
    assert_same_gradients(full_gradients(first), reference(decoder(), data[:1] * 2, 1))
    c = headrace.attach(second)
    assert_works(c, second, rank, world)
    c.detach()


def test_the_last_detach_gives_fsdp2_back(pools: RankPools) -> None:
    pools.run(2, restored)


# -- versions


def test_another_torch_is_refused_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(OperationError, match=r"torch 2\.9\.1\+cpu is not supported.*torch 2\.13"):
        fsdp2.hooks()


def test_changed_internals_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FSDPParamGroup, "unshard", lambda self, stream: None)
    monkeypatch.delattr(_fsdp_param_group, "foreach_reduce")
    with pytest.raises(OperationError) as error:
        fsdp2.hooks()
    assert "FSDPParamGroup.unshard takes (self stream) and not (self async_op)" in str(error.value)
    assert "foreach_reduce is missing" in str(error.value)
    assert torch.__version__ in str(error.value)


def test_importing_headrace_does_not_import_torch() -> None:
    code = "import sys, headrace; assert 'torch' not in sys.modules; print(headrace.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == headrace.__version__
