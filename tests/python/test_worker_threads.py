"""Communication beside the compute: the same bits, no prefetch or reduction that outlives its
time, and how much of it was hidden. That everything else holds too, the modules that say
`with_worker_threads` test."""

import gc
import sys
from typing import Any

import headrace
import pytest
import torch
import torch.nn as nn
from headrace.errors import OperationError
from support.lockstep import assert_equal, data, full_parameters, make, train
from support.models import decoder, full_gradients, loss_sum, shard
from support.ranks import RankPools


def bits(rank: int, world: int, kind: str, settings: dict[str, Any]) -> None:
    runs = []
    for worker_threads in (False, True):
        model = make(kind)
        for block, after in zip(model.blocks, [*model.blocks[1:], model], strict=True):
            block.set_modules_to_forward_prefetch([after])
        engine = headrace.attach(model, mode="lockstep", worker_threads=worker_threads, **settings)
        runs.append(full_parameters(train(model, rank, world, 8)))
        engine.detach()
    assert_equal(*runs)


@pytest.mark.parametrize("residence", ["in-place", "slot-reuse"])
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_lockstep_gets_the_same_bits(pools: RankPools, kind: str, residence: str) -> None:
    pools.run(4, bits, kind, {"residence": residence})


def test_several_nodes_get_the_same_bits(pools: RankPools) -> None:
    pools.run(4, bits, "fp32", {"local_ranks": 2})


class Branching(nn.Module):
    """Uses its first and last block, and the middle one where asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor, all_blocks: bool = False) -> torch.Tensor:
        for i, block in enumerate(self.blocks):
            if i != 1 or all_blocks:
                x = torch.tanh(block(x))
        return x


def branching() -> Branching:
    torch.manual_seed(0)
    return Branching()


def unused_prefetch(rank: int, world: int) -> None:
    x = torch.ones(2, 8)
    model, plain = shard(branching()), branching()
    blocks = list(model.blocks)
    blocks[2].set_modules_to_backward_prefetch([blocks[1]])
    engine = headrace.attach(model, mode="lockstep", worker_threads=True)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (model, plain)]
    for _ in range(2):
        for each, optimizer in zip((model, plain), optimizers, strict=True):
            each(x).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        (group,) = blocks[1]._get_fsdp_state()._fsdp_param_groups
        assert group._all_gather_result is None
        for param in group.fsdp_params:
            assert [o.untyped_storage().nbytes() for o in param.all_gather_outputs] == [0]
        with torch.no_grad():  # what was prefetched is stale now
            for each in (model, plain):
                for param in each.blocks[1].parameters():
                    param.mul_(2)
            torch.testing.assert_close(model(x, all_blocks=True), plain(x, all_blocks=True))
    assert any(event["name"] == "all_gather" for event in engine.timeline())
    engine.detach()


def test_a_prefetch_that_nobody_uses_ends_with_the_backward(pools: RankPools) -> None:
    pools.run(2, unused_prefetch)


def gradients_there(rank: int, world: int, mode: str) -> None:
    model = shard(decoder())
    engine = headrace.attach(model, mode=mode, worker_threads=True)
    model.set_is_last_backward(False)  # FSDP2 then ends nothing itself
    for number in (1, 2):
        if mode == "lockstep":
            loss_sum(model, data[rank]).backward()
        else:
            with engine.minibatch():
                loss_sum(model, data[rank]).backward()
        if number == 1:
            once = full_gradients(model)
    for name, twice in full_gradients(model).items():
        torch.testing.assert_close(twice, 2 * once[name], rtol=1e-6, atol=1e-7)
    engine.detach()


@pytest.mark.parametrize("mode", ["lockstep", "on-demand"])
def test_gradients_are_there_and_add_up_after_every_backward(pools: RankPools, mode: str) -> None:
    pools.run(2, gradients_there, mode)


class Trainer:
    """In a cycle with itself, as trainers are: collected, not counted down."""

    def __init__(self, engine: headrace.Engine) -> None:
        self.engine, self.itself = engine, self


def collected(rank: int, world: int) -> list[str]:
    errors: list[str] = []
    model = shard(decoder())
    trainer = Trainer(headrace.attach(model, mode="lockstep", worker_threads=True))
    loss_sum(model, data[rank]).backward()
    model.blocks[1].unshard(async_op=True)
    sys.unraisablehook = lambda raised: errors.append(repr(raised.exc_value))
    with pytest.warns(ResourceWarning, match="dropped"):
        del trainer
        gc.collect()
    model.zero_grad()
    loss_sum(model, data[rank]).backward()  # stock
    assert all(param.grad is not None for param in model.parameters())
    return errors


def test_an_engine_that_is_collected_ends_its_gathers(pools: RankPools) -> None:
    assert pools.run(2, collected) == [[], []]


class Interrupted(Exception):
    pass


def raising(rank: int, world: int, mode: str) -> None:
    """A backward that ends half-way, on every rank alike."""

    def stop(_: torch.Tensor) -> None:
        raise Interrupted

    model = shard(decoder(width=64))
    engine = headrace.attach(model, mode=mode, worker_threads=True)
    with pytest.raises(Interrupted):
        if mode == "lockstep":
            half_way(model, data[rank], stop)
        else:
            with engine.minibatch():
                half_way(model, data[rank], stop)
    engine.detach()
    model.zero_grad()
    loss_sum(model, data[rank]).backward()  # stock
    assert all(param.grad is not None for param in model.parameters())


def reset_after_raising(rank: int, world: int, residence: str) -> None:
    """FSDP2's own way on after an exception. Nothing is left of groups that had begun to reduce;
    what the root has accumulated FSDP2 itself keeps."""

    def stop(_: torch.Tensor) -> None:
        raise Interrupted

    model = shard(decoder())
    engine = headrace.attach(model, mode="lockstep", worker_threads=True, residence=residence)
    loss_sum(model, data[rank]).backward()
    expected = full_gradients(model)
    with pytest.raises(Interrupted):
        half_way(model, data[rank], stop)
    model.reset_iter_state()
    model.zero_grad()
    loss_sum(model, data[rank]).backward()
    after = full_gradients(model)
    blocks = [name for name in expected if name.startswith("blocks.")]
    assert_equal({n: after[n] for n in blocks}, {n: expected[n] for n in blocks})
    engine.detach()


@pytest.mark.parametrize("residence", ["in-place", "slot-reuse"])
def test_a_failed_backward_leaves_no_gradient_behind(pools: RankPools, residence: str) -> None:
    pools.run(2, reset_after_raising, residence)


def half_way(model: nn.Module, ids: torch.Tensor, stop: Any) -> None:
    hook = model.blocks[0].register_forward_hook(
        lambda _module, _args, output: output.register_hook(stop) and None
    )
    try:
        loss_sum(model, ids).backward()
    finally:
        hook.remove()


@pytest.mark.parametrize("mode", ["lockstep", "on-demand"])
def test_an_exception_in_backward_leaves_the_model_fit_for_use(pools: RankPools, mode: str) -> None:
    pools.run(2, raising, mode)


def hidden(rank: int, world: int, mode: str) -> dict[str, set[str]]:
    model = shard(decoder(width=256))
    blocks = list(model.blocks)
    for block, after in zip(blocks, blocks[1:], strict=False):
        block.set_modules_to_forward_prefetch([after])
    engine = headrace.attach(model, mode=mode, worker_threads=True)
    with engine.minibatch():
        loss_sum(model, data[rank]).backward()
    events = engine.timeline()
    worked = sum(e["end_ns"] - e["begin_ns"] for e in events if e["thread"] in ("worker", "pusher"))
    held = sum(e["waited_ns"] for e in events if e["name"] == "wait")
    assert worked > 0
    assert engine.report.hidden_ms == pytest.approx(max(0, worked - held) / 1e6)
    threads: dict[str, set[str]] = {}
    for event in events:
        threads.setdefault(event["name"], set()).add(event["thread"])
    engine.detach()
    return threads


def test_on_demand_gathers_and_pushes_run_on_threads_of_their_own(pools: RankPools) -> None:
    for threads in pools.run(2, hidden, "on-demand"):
        assert threads["gather"] == {"worker"} and threads["push"] == {"pusher"}
        assert threads["settle"] == threads["publish"] == {"caller"}


def test_lockstep_runs_on_one_thread_of_its_own(pools: RankPools) -> None:
    for threads in pools.run(2, hidden, "lockstep"):
        assert threads["all_gather"] == threads["reduce_scatter"] == {"worker"}


def nothing_hidden(rank: int, world: int) -> float:
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch():
        loss_sum(model, data[rank]).backward()
    assert {event["thread"] for event in engine.timeline()} == {"caller"}
    engine.detach()
    return engine.report.hidden_ms


def test_without_them_all_runs_on_the_caller_and_nothing_is_hidden(pools: RankPools) -> None:
    assert pools.run(2, nothing_hidden) == [0.0, 0.0]


def disagreeing(rank: int, world: int, value: object) -> str:
    with pytest.raises(OperationError) as raised:
        headrace.attach(shard(decoder()), worker_threads=value if rank else False)
    return str(raised.value)


def test_a_wrong_value_is_refused(pools: RankPools) -> None:
    assert all("worker_threads='yes'" in text for text in pools.run(2, disagreeing, "yes"))


def other_ranks_differ(rank: int, world: int) -> str:
    with pytest.raises(headrace.errors.HeadraceError) as raised:
        headrace.attach(shard(decoder()), worker_threads=rank == 0)
    return str(raised.value)


def test_ranks_that_differ_are_told(pools: RankPools) -> None:
    assert all("worker_threads" in text for text in pools.run(2, other_ranks_differ))
