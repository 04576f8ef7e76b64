"""HSDP in both modes: sums over the shard mesh and its replicas."""

import headrace
import pytest
import torch
import torch.nn as nn
from support.lockstep import data, make
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    tokens_of,
)
from support.ranks import RankPools
from torch.distributed.device_mesh import init_device_mesh

with_worker_threads = True


def hsdp(rank: int, world: int, mode: str) -> None:
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    model = make("fp32", mesh=mesh)
    engine = headrace.attach(model, mode=mode)
    count = tokens_of(data[: 2 * world])
    for _ in range(2):
        with engine.minibatch(tokens=count):
            for ids in data[2 * rank : 2 * rank + 2]:
                engine.backward(loss_sum(model, ids))
        assert_same_gradients(full_gradients(model), reference(decoder(), data[: 2 * world], count))
        model.zero_grad()
    with engine.minibatch():
        loss_sum(model, data[rank]).backward()
    assert_same_gradients(full_gradients(model), reference(decoder(), data[:world], world))
    assert engine.report.loss is None
    engine.detach()


@pytest.mark.parametrize("mode", ["lockstep", "on-demand"])
def test_hsdp_sums_over_shards_and_replicas(pools: RankPools, mode: str) -> None:
    pools.run(4, hsdp, mode)


def hsdp_partial(rank: int, world: int) -> None:
    """set_requires_all_reduce(False) keeps partial sums, as with stock."""

    def steps(model: nn.Module) -> dict[str, torch.Tensor | None]:
        for i in range(2):
            model.set_requires_all_reduce(i == 1)
            loss_sum(model, data[i * world + rank]).backward()
        return full_gradients(model)

    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    stock = steps(make("fp32", mesh=mesh))
    model = make("fp32", mesh=mesh)
    engine = headrace.attach(model, mode="lockstep")
    ours = steps(model)
    engine.detach()
    for name, gradient in stock.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-5, atol=1e-6)


def test_hsdp_keeps_partial_sums_between_reductions(pools: RankPools) -> None:
    pools.run(4, hsdp_partial)
