"""accumulate="reproducible": a training run gives the same bits whoever comes when."""

import time

import headrace
import pytest
import torch
from headrace.errors import HeadraceError, OperationError
from support.models import (
    assert_same_gradients,
    decoder,
    full_gradients,
    loss_sum,
    reference,
    samples,
    shard,
    shard_in_bfloat16,
    tokens_of,
)
from support.ranks import RankPools

data = samples(12)
total = tokens_of(data)
steps = 5
page = 4096


def microbatches(rank: int, world: int, step: int) -> list[torch.Tensor]:
    """Uneven: in every step another rank has none."""
    workers = [r for r in range(world) if r != step % world] or [0]
    return data[workers.index(rank) :: len(workers)] if rank in workers else []


def train(rank: int, world: int, seconds: list[float], half: bool) -> list[bytes]:
    """The bits of this rank's shards and gradients after five steps with a pause of `seconds[rank]`
    before each microbatch."""
    model = (shard_in_bfloat16 if half else shard)(decoder())
    engine = headrace.attach(model, accumulate="reproducible")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for step in range(steps):
        optimizer.zero_grad()
        with engine.minibatch(tokens=total):
            for ids in microbatches(rank, world, step):
                time.sleep(seconds[rank])
                engine.backward(loss_sum(model, ids))
        optimizer.step()
        assert engine.report.accumulate == "reproducible"
    engine.detach()
    shards = [param.to_local() for param in model.parameters()]
    gradients = [param.grad.to_local() for param in model.parameters()]
    return [tensor.detach().numpy().tobytes() for tensor in shards + gradients]


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("world", [1, 3, 4])
def test_delays_change_no_bit_of_a_training_run(pools: RankPools, world: int, half: bool) -> None:
    delays = [0.004 * rank for rank in range(world)]
    runs = [pools.run(world, train, pauses, half) for pauses in (delays, delays[::-1])]
    assert runs[0] == runs[1]


def right_gradients(rank: int, world: int) -> None:
    model = shard(decoder())
    engine = headrace.attach(model, accumulate="reproducible")
    for step in range(2):
        model.zero_grad()
        with engine.minibatch(tokens=total):
            for ids in microbatches(rank, world, step):
                engine.backward(loss_sum(model, ids))
        assert_same_gradients(full_gradients(model), reference(decoder(), data, total))
    engine.detach()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_gradients_are_those_of_one_process(pools: RankPools, world: int) -> None:
    pools.run(world, right_gradients)


def arena_bytes(rank: int, world: int) -> dict[str, int]:
    found = {}
    for accumulate in ("arrival", "reproducible"):
        engine = headrace.attach(shard(decoder()), accumulate=accumulate)
        with engine.minibatch():
            pass
        assert engine.report.accumulate == accumulate
        found[accumulate] = engine.report.arena_bytes
        engine.detach()
    return found


@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_report_counts_a_slot_for_every_further_rank(pools: RankPools, world: int) -> None:
    model = decoder()
    blocks = [list(block.parameters()) for block in model.blocks]
    inner = {id(param) for block in blocks for param in block}
    root = [param for param in model.parameters() if id(param) not in inner]

    def slot(group: list[torch.nn.Parameter]) -> int:
        rows = [-(-p.shape[0] // world) * (p.numel() // p.shape[0]) * 4 for p in group]
        return -(-sum(-(-size // 16) * 16 for size in rows) // page) * page

    slots = sum(slot(group) for group in [*blocks, root])
    for found in pools.run(world, arena_bytes):
        locks = page  # which only arrival has
        assert found["reproducible"] == found["arrival"] - locks + (world - 1) * slots


def wrong_values(rank: int, world: int) -> None:
    model = shard(decoder())
    with pytest.raises(OperationError, match=r"accumulate='fast'.*'arrival', 'reproducible'"):
        headrace.attach(model, accumulate="fast" if rank == 1 else "arrival")
    with pytest.raises(OperationError, match=r"accumulate=\['arrival'\]"):
        headrace.attach(model, accumulate=["arrival"])
    with pytest.raises(HeadraceError, match=r"accumulate=(arrival|reproducible)") as error:
        headrace.attach(model, accumulate="reproducible" if rank == 1 else "arrival")
    assert "all ranks must agree" in str(error.value)
    engine = headrace.attach(model)
    with engine.minibatch():
        pass
    assert engine.report.accumulate == "arrival"
    engine.detach()


def test_a_wrong_value_and_ranks_that_differ_are_named(pools: RankPools) -> None:
    pools.run(2, wrong_values)
