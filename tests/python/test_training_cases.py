"""Cases from public reports (cases/training.jsonl), reduced to their smallest form."""

import json
from pathlib import Path

import headrace
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from support.models import assert_same_gradients, decoder, full_gradients, shard
from support.ranks import RankPools
from torch.distributed.fsdp import fully_shard

cases = {
    case["id"]: case
    for case in map(json.loads, (Path(__file__).parent / "cases/training.jsonl").open())
}
of_lockstep = {"unequal-counts-lockstep-refused", "filler-loss-attached"}
tested = {
    "token-mean",
    "no-valid-tokens-one-rank",
    "no-valid-tokens-anywhere",
    "unequal-counts-on-demand",
    "masked-rank-joins",
    "filler-metrics",
}


def test_every_case_is_tested_here_or_concerns_lockstep() -> None:
    assert set(cases) == tested | of_lockstep


def scalar_model() -> nn.Linear:
    """y = x: a token's loss is its input."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


def token_mean(rank: int, world: int, swapped: bool, counted: bool) -> float:
    """5 tokens of loss 1 and one of loss 7, packed over the ranks as told."""
    model = fully_shard(scalar_model())
    engine = headrace.attach(model)
    packs = [torch.ones(5, 1), torch.full((1, 1), 7.0)]
    mine = packs[(rank + swapped) % 2]
    with engine.minibatch() if counted else engine.minibatch(tokens=6):
        engine.backward(model(mine).sum(), **({"tokens": len(mine)} if counted else {}))
    assert model.weight.grad.full_tensor().item() == pytest.approx(12 / 6)
    engine.detach()
    return engine.report.loss


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_token_mean(pools: RankPools, swapped: bool, counted: bool) -> None:
    assert pools.run(2, token_mean, swapped, counted) == [2.0, 2.0]


def masked_loss(model: nn.Module, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(ids[None])[0], labels, ignore_index=-100, reduction="sum")


def valid_tokens(rank: int, world: int, valid: list[int], counted: bool) -> dict[str, object]:
    ids = [torch.arange(9) % 13, (torch.arange(9) * 5) % 13]
    labels = []
    for row, count in zip(ids, valid, strict=True):
        label = row.roll(1)
        label[count:] = -100
        labels.append(label)
    model = shard(decoder())
    engine = headrace.attach(model)
    total = sum(valid)
    with engine.minibatch() if counted else engine.minibatch(tokens=total):
        engine.backward(
            masked_loss(model, ids[rank], labels[rank]),
            **({"tokens": valid[rank]} if counted else {}),
        )
    got = full_gradients(model)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    plain = decoder().double()
    for row, label in zip(ids, labels, strict=True):
        (masked_loss(plain, row, label) / max(total, 1)).backward()
    assert_same_gradients(got, {name: p.grad for name, p in plain.named_parameters()})
    engine.detach()
    return engine.report.as_dict() | {"norm": norm.full_tensor().item()}


@pytest.mark.parametrize("counted", [False, True])
def test_no_valid_tokens_one_rank(pools: RankPools, counted: bool) -> None:
    """Also masked-rank-joins: the masked rank settles and joins the norm."""
    first, second = pools.run(2, valid_tokens, [0, 8], counted)
    assert first["tokens"] == second["tokens"] == 8 and not first["flagged"]
    assert first["loss"] == second["loss"] > 0
    assert first["norm"] == second["norm"] > 0


@pytest.mark.parametrize("counted", [False, True])
def test_no_valid_tokens_anywhere(pools: RankPools, counted: bool) -> None:
    for report in pools.run(2, valid_tokens, [0, 0], counted):
        assert (report["loss"], report["norm"], report["flagged"]) == (0.0, 0.0, True)


def nan_without_tokens(rank: int, world: int) -> None:
    model = fully_shard(scalar_model())
    engine = headrace.attach(model)
    model.weight.grad = torch.ones_like(model.weight)
    with engine.minibatch(tokens=0):
        engine.backward(model(torch.zeros(1, 1)).sum() / torch.zeros(()))  # 0/0
    assert engine.report.loss == 0.0 and engine.report.flagged
    assert model.weight.grad.full_tensor().item() == 1.0  # what was there stays
    engine.detach()


def test_a_loss_of_zero_over_zero_never_reaches_a_gradient(pools: RankPools) -> None:
    pools.run(2, nan_without_tokens)


def unequal_counts(rank: int, world: int) -> tuple[int, int]:
    lengths = [[8, 8, 8], [4, 4]][rank]
    model = shard(decoder())
    engine = headrace.attach(model)
    with engine.minibatch(tokens=32):
        for length in lengths:
            ids = torch.arange(length) % 13
            engine.backward(masked_loss(model, ids, ids.roll(1)))
    engine.detach()
    return engine.report.microbatches, engine.report.pushes


def test_unequal_counts_on_demand_need_no_filler(pools: RankPools) -> None:
    groups = 4
    assert pools.run(2, unequal_counts) == [(3, 3 * groups), (2, 2 * groups)]


def metrics(rank: int, world: int) -> float:
    model = fully_shard(scalar_model())
    engine = headrace.attach(model)
    with engine.minibatch():
        if rank < 2:
            engine.backward(model(torch.ones(1, 1)).sum(), samples=1)
    engine.detach()
    return engine.report.loss


def test_filler_metrics_a_rank_without_work_does_not_dilute_the_mean(pools: RankPools) -> None:
    assert pools.run(3, metrics) == [1.0, 1.0, 1.0]
