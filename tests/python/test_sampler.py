"""MinibatchSampler: the plans of `minibatches` through a DataLoader and its workers, resumable."""

import json
from typing import Any

import pytest
import torch
from headrace.data import MinibatchSampler, PackedCollator, minibatches
from headrace.errors import OperationError
from support.datasets import seen, tokens_of
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

dataset = tokens_of(70)
lengths = [len(sample) for sample in dataset]


def sampler(world_size: int = 3, rank: int = 1, **options: Any) -> MinibatchSampler:
    options = {"samples_per_minibatch": 16, "seed": 5} | options
    return MinibatchSampler(lengths, world_size, 64, rank=rank, **options)


def loader(batch_sampler: MinibatchSampler, workers: int = 0, kind: Any = DataLoader) -> DataLoader:
    options: dict[str, Any] = {"batch_sampler": batch_sampler, "collate_fn": list}
    if workers:
        options |= {"multiprocessing_context": "fork", "persistent_workers": True}
    return kind(dataset, num_workers=workers, **options)


def unbroken(epochs: int, world_size: int = 3, rank: int = 1) -> list:
    made = minibatches(dataset, world_size, 64, samples_per_minibatch=16, rank=rank, seed=5)
    return [one for _ in range(epochs) for one in seen(made)]


@pytest.mark.parametrize("strategy", ["none", "lb-micro", "lb-mini"])
def test_every_rank_trains_what_minibatches_gives_it(strategy):
    for rank in range(3):
        source = sampler(rank=rank, strategy=strategy)
        expected = minibatches(
            dataset, 3, 64, strategy, samples_per_minibatch=16, rank=rank, seed=5
        )
        drawn = loader(source)
        assert seen(source.minibatches(drawn)) + seen(source.minibatches(drawn)) == seen(
            expected
        ) + seen(expected)


def test_lengths_may_be_an_array():
    source = MinibatchSampler(
        torch.tensor(lengths), 3, 64, rank=1, samples_per_minibatch=16, seed=5, drop_last=True
    )
    seen(source.minibatches(loader(source)))
    assert json.loads(json.dumps(source.state_dict()))["tail_samples"] == 70 % 16


@pytest.mark.parametrize("count", [69, 71])
def test_groups_must_be_one_a_sample(count):
    with pytest.raises(ValueError, match=f"{count} groups for 70 samples"):
        sampler(groups=[0] * count)
    with pytest.raises(ValueError, match=f"{count} groups for 70 samples"):
        minibatches(dataset, 3, 64, rank=1, groups=[0] * count)


def test_it_is_a_plain_batch_sampler_too():
    batches = list(loader(sampler()))
    assert batches == [
        [dataset[i] for i in micro] for _, minibatch in unbroken(1) for micro in minibatch
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_resumed_twice_in_an_epoch_trains_what_an_unbroken_one_does(workers):
    """Workers are several minibatches ahead of what the state names."""
    source = sampler()
    done = seen(source.minibatches(loader(source, workers)), most=2)
    for more in (1, 20):
        state = json.loads(json.dumps(source.state_dict()))
        assert all(type(value) is int for value in state.values())
        source = sampler()
        source.load_state_dict(state)
        done += seen(source.endless(loader(source, workers)), most=more)
    assert done == unbroken(5)[:23]


def test_what_a_loop_leaves_of_a_minibatch_does_not_reach_the_next():
    source = sampler()
    firsts = []
    for minibatch in source.minibatches(loader(source, 2)):
        firsts.append(next(iter(minibatch), None))
    assert [batch and batch[0][0] // 1000 for batch in firsts] == [
        micros[0][0] if micros else None for _, micros in unbroken(1)
    ]


def test_batches_that_were_taken_are_not_taken_for_none():
    source = sampler()
    first, *_ = source.minibatches(loader(source))
    with pytest.raises(RuntimeError, match="come once"):
        list(first)


def test_persistent_workers_serve_an_epoch_begun_again():
    source = sampler()
    drawn = loader(source, 2)
    begun = seen(source.minibatches(drawn), most=1)
    rest = seen(source.minibatches(drawn))  # the first loop was left in the middle
    assert begun + rest == unbroken(1)
    source.set_epoch(0)
    assert seen(source.minibatches(drawn)) == unbroken(1)


def test_a_run_may_resume_with_another_world_size():
    before = sampler(world_size=2, rank=0)
    consumed = [i for m in [next(before.minibatches(loader(before)))] for i in m.global_indices]
    trained = []
    for rank in range(4):
        after = sampler(world_size=4, rank=rank)
        after.load_state_dict(before.state_dict())
        trained += [
            i for m in after.minibatches(loader(after)) for micro in m.indices for i in micro
        ]
    assert sorted(consumed + trained) == list(range(70))
    with pytest.raises(ValueError, match="samples_per_minibatch 16, but this run has 32"):
        sampler(world_size=4, samples_per_minibatch=None).load_state_dict(before.state_dict())


def test_global_tokens_are_the_weights_of_all_ranks():
    weights = [max(0, length - 3) for length in lengths]
    first = {next(s.minibatches(loader(s))).global_tokens for s in (sampler(weights=weights),)}
    indices = sampler().make(0, 0).global_indices
    assert first == {sum(weights[i] for i in indices)}
    assert sampler().make(0, 0).global_tokens == sum(lengths[i] for i in indices)


def test_what_was_left_out_is_counted():
    source = sampler(drop_last=True)
    list(source.minibatches(loader(source)))
    assert source.steps == 4
    assert source.lost.tail_samples == 70 - 64
    trained = {i for step in range(4) for i in source.make(0, step).global_indices}
    assert source.lost.tokens == sum(lengths[i] for i in set(range(70)) - trained)
    short = MinibatchSampler(lengths, 1, 40, oversize="drop", samples_per_minibatch=16)
    list(short.minibatches(loader(short)))
    over = [length for length in lengths if length > 40]
    assert over and (short.lost.oversize_samples, short.lost.tokens) == (len(over), sum(over))


def test_truncation_is_the_collators():
    source = MinibatchSampler(lengths, 1, 40, oversize="truncate", samples_per_minibatch=16)
    drawn = DataLoader(dataset, batch_sampler=source, collate_fn=PackedCollator(max_tokens=40))
    for minibatch in source.minibatches(drawn):
        sizes = [batch["input_ids"].numel() for batch in minibatch]
        assert sizes == [micro.tokens for micro in minibatch.microbatches]
        assert max(sizes) <= 40
        assert sum(sizes) == minibatch.global_tokens
    assert source.lost.tokens == sum(max(0, length - 40) for length in lengths)


def test_fewer_samples_than_ranks_leave_ranks_without_microbatches_or_with_fillers():
    few = tokens_of(3)

    def batches(strategy: str) -> list[list[int]]:
        sizes = []
        for rank in range(5):
            source = MinibatchSampler([len(s) for s in few], 5, 64, strategy, rank=rank)
            drawn = DataLoader(few, batch_sampler=source, collate_fn=PackedCollator())
            minibatch = next(source.minibatches(drawn))
            sizes.append([int((batch["labels"] != -100).sum()) for batch in minibatch])
        return sorted(sizes)

    targets = sorted([len(sample) - 1] for sample in few)
    assert batches("lb-mini") == sorted([[], [], *targets])
    assert batches("lb-micro") == sorted([[0], [0], *targets])


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdatas_own_state_of_the_loader_resumes_too(workers):
    source = sampler()
    drawn = loader(source, workers, StatefulDataLoader)
    done = seen(source.minibatches(drawn), most=2)
    state = drawn.state_dict()
    source = sampler()
    drawn = loader(source, workers, StatefulDataLoader)
    drawn.load_state_dict(state)
    done += seen(source.minibatches(drawn))
    assert done == unbroken(1)
    assert seen(source.minibatches(drawn)) == unbroken(2)[5:]


def test_a_loaders_state_within_a_minibatch_is_refused_where_minibatches_are_asked_for():
    source = sampler()
    drawn = loader(source, 0, StatefulDataLoader)
    next(iter(drawn))
    state = drawn.state_dict()
    source = sampler()
    drawn = loader(source, 0, StatefulDataLoader)
    drawn.load_state_dict(state)
    with pytest.raises(ValueError, match="1 microbatches into step 0"):
        next(source.minibatches(drawn))


def test_a_loader_that_cannot_serve_is_refused():
    source = sampler()
    with pytest.raises(ValueError, match="batch_sampler=sampler"):
        next(source.minibatches(loader(sampler())))
    unordered = DataLoader(
        dataset, batch_sampler=source, num_workers=1, in_order=False, multiprocessing_context="fork"
    )
    with pytest.raises(ValueError, match="in_order"):
        next(source.minibatches(unordered))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"oversize": "split"}, "oversize='split'.*headrace.data.minibatches"),
        ({"weights": [1.0]}, "1 weights for 70 samples"),
        ({"rank": 3}, "rank 3 does not lie in a world of 3"),
    ],
)
def test_bad_arguments_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        sampler(**options)
    with pytest.raises(OperationError, match="tokens, more than the cap of 10"):
        next(iter(MinibatchSampler(lengths, 1, 10)))
