"""balanced_partitions in the place of verl's own function, where verl is installed."""

import random

import pytest
import torch
from headrace.data import balanced_partitions

balancing = pytest.importorskip("verl.utils.seqlen_balancing")


@pytest.mark.parametrize("equal_size", [False, True])
def test_no_part_is_larger_than_verls_largest(equal_size: bool) -> None:
    draw = random.Random(0)
    for _ in range(500):
        parts = draw.choice([2, 4, 8])
        lengths = [
            max(1, int(draw.lognormvariate(6, 1))) for _ in range(parts * draw.randint(1, 16))
        ]
        workloads = balancing.calculate_workload(torch.tensor(lengths)).tolist()
        ours, theirs = (
            max(sum(workloads[i] for i in part) for part in deal(workloads, parts, equal_size))
            for deal in (balanced_partitions, balancing.get_seqlen_balanced_partitions)
        )
        assert ours <= theirs


def test_verls_microbatches_are_made_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensordict import TensorDict

    monkeypatch.setattr(balancing, "get_seqlen_balanced_partitions", balanced_partitions)
    draw = random.Random(0)
    lengths = torch.tensor([draw.randint(1, 60) for _ in range(24)])
    batch = {
        "input_ids": torch.zeros(24, 64, dtype=torch.int64),
        "attention_mask": (torch.arange(64)[None] < lengths[:, None]).long(),
    }
    made, indices = balancing.rearrange_micro_batches(
        TensorDict(batch, batch_size=24), max_token_len=128
    )
    assert sorted(i for part in indices for i in part) == list(range(24))
    sums = [int(micro["attention_mask"].sum()) for micro in made]
    assert sum(sums) == int(lengths.sum())
    assert max(sums) - min(sums) <= 0.1 * max(sums)
