"""Datasets of Hugging Face, map-style and iterable, are dealt as any others."""

import json
from typing import Any

import datasets
import pytest
from headrace.data import MinibatchSampler, MinibatchStream, PackedCollator, chat, minibatches
from support.datasets import tokens_of
from torch.utils.data import DataLoader

samples = tokens_of(50, longest=20)
rows = [{"input_ids": s, "loss_mask": [0] + [1] * (len(s) - 1)} for s in samples]
lengths = [len(sample) for sample in samples]
pack = PackedCollator()


def trained(batches: Any) -> list[int]:
    """The samples of packs, in order."""
    firsts = []
    for batch in batches:
        begins = batch["cu_seqlens"][:-1].tolist()
        firsts += [int(batch["input_ids"][0, begin]) // 1000 for begin in begins]
    return firsts


def flat(minibatches: Any) -> list[int]:
    return [i for minibatch in minibatches for micro in minibatch.indices for i in micro]


@pytest.mark.parametrize("kind", [None, "torch", "numpy"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_map_style_dataset_in_any_format_through_a_loader(kind: str | None, workers: int) -> None:
    dataset = datasets.Dataset.from_list(rows).with_format(kind)
    options = {"samples_per_minibatch": 12, "rank": 1, "seed": 3}
    sampler = MinibatchSampler(lengths, 2, 40, **options)
    fork = {"multiprocessing_context": "fork"} if workers else {}
    loader = DataLoader(
        dataset, batch_sampler=sampler, collate_fn=pack, num_workers=workers, **fork
    )
    found = [trained(minibatch) for minibatch in sampler.minibatches(loader)]
    expected = [flat([m]) for m in minibatches(samples, 2, 40, **options)]
    assert found == expected


def test_a_map_style_dataset_in_this_process() -> None:
    dataset = datasets.Dataset.from_list(rows)
    for minibatch in minibatches(dataset, 1, 40, length=pack.length, weight=pack.targets):
        assert minibatch.global_tokens == sum(pack.targets(rows[i]) for i in flat([minibatch]))
        assert trained(map(pack, minibatch)) == flat([minibatch])


def test_fewer_samples_than_ranks_leave_fillers() -> None:
    """An empty list of rows is what the dataset is asked for then."""
    dataset = datasets.Dataset.from_list(rows[:2])
    targets = []
    for rank in range(3):
        sampler = MinibatchSampler(lengths[:2], 3, 40, "lb-micro", rank=rank)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=pack)
        minibatch = next(sampler.minibatches(loader))
        targets += [int((batch["labels"] != -100).sum()) for batch in minibatch]
    assert sorted(targets) == sorted([0, lengths[0] - 1, lengths[1] - 1])


def stream(shards: int) -> Any:
    return datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=shards)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_dataset_resumes_by_its_own_state(workers: int) -> None:
    def make(rank: int = 0) -> tuple[MinibatchStream, DataLoader | None]:
        options = {"samples_per_minibatch": 12, "rank": rank, "length": pack.length}
        source = MinibatchStream(stream(4), 2, 40, collate=pack, **options)
        fork = {"num_workers": workers, "multiprocessing_context": "fork"}
        return source, DataLoader(source, batch_size=None, **fork) if workers else None

    whole, loader = make()
    unbroken = [trained(minibatch) for _ in range(2) for minibatch in whole.minibatches(loader)]
    other, loader = make(rank=1)
    first_epoch = [trained(minibatch) for minibatch in other.minibatches(loader)]
    together = [i for part in (*unbroken[:5], *first_epoch) for i in part]
    assert sorted(together) == list(range(50))

    source, loader = make()
    done = []
    for more in (2, 1, 7):
        for minibatch in source.endless(loader):
            done.append(trained(minibatch))
            more -= 1
            if more == 0:
                break
        state = json.loads(json.dumps(source.state_dict()))
        assert source.step == 0 or state["dataset"] is not None
        source, loader = make()
        source.load_state_dict(state)
    assert done == unbroken


def test_conversations_are_mapped_to_samples() -> None:
    talks = [
        [{"role": "user", "content": "a" * n}, {"role": "assistant", "content": "b" * (20 - n)}]
        for n in range(1, 20)
    ]
    dataset = datasets.Dataset.from_dict({"messages": talks})
    encoded = dataset.map(lambda row: chat.encode(row["messages"]), remove_columns=["messages"])
    assert [pack.targets(row) for row in encoded] == [20 - n + 1 for n in range(1, 20)]
