"""MinibatchStream: an iterable dataset, in this process and through workers, resumable."""

import itertools
import json
import pickle
from typing import Any

import pytest
from headrace.data import CostModel, MinibatchStream, minibatches
from support.datasets import StatefulStream, Stream, seen, tokens_of
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

samples = tokens_of(70)


def stream(dataset: Any = None, world_size: int = 3, rank: int = 1, **options: Any) -> Any:
    options = {"samples_per_minibatch": 16} | options
    return MinibatchStream(dataset or Stream(samples), world_size, 64, rank=rank, **options)


def loader(source: MinibatchStream, workers: int) -> DataLoader | None:
    if workers == 0:
        return None
    options = {"multiprocessing_context": "fork", "persistent_workers": True}
    return DataLoader(source, batch_size=None, num_workers=workers, **options)


def unbroken(epochs: int, world_size: int = 3, rank: int = 1) -> list:
    options = {"samples_per_minibatch": 16, "rank": rank, "shuffle": False}
    made = minibatches(samples, world_size, 64, **options)
    return [one for _ in range(epochs) for one in seen(made)]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_it_has_the_minibatches_of_the_same_samples_in_a_list(workers):
    source = stream()
    drawn = loader(source, workers)
    assert seen(source.endless(drawn), most=12) == unbroken(3)[:12]


def test_ranks_together_train_every_sample_once():
    trained = []
    for rank in range(4):
        source = stream(world_size=4, rank=rank)
        trained += [i for m in source.minibatches() for micro in m.indices for i in micro]
    assert sorted(trained) == list(range(70))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Stream, StatefulStream])
def test_a_run_resumed_twice_in_an_epoch_trains_what_an_unbroken_one_does(kind, workers):
    source = stream(kind(samples))
    done = seen(source.minibatches(loader(source, workers)), most=2)
    for more in (1, 9):
        state = json.loads(json.dumps(source.state_dict()))
        source = stream(kind(samples))
        source.load_state_dict(state)
        done += seen(source.endless(loader(source, workers)), most=more)
    assert done == unbroken(3)[:12]


def test_a_dataset_with_a_state_of_its_own_does_not_read_again_what_was_trained():
    source = stream(StatefulStream(samples))
    seen(source.minibatches(), most=3)
    dataset = StatefulStream(samples)
    source2 = stream(dataset)
    source2.load_state_dict(source.state_dict())
    assert source2.state_dict()["dataset"] == {"next": 48}
    seen(source2.minibatches())
    assert dataset.read == 70 - 48


def test_workers_that_live_on_follow_a_state_loaded_later():
    """They were started before it came, so they skip instead."""
    source = stream(StatefulStream(samples))
    drawn = loader(source, 2)
    seen(source.minibatches(drawn), most=2)
    state = source.state_dict()
    seen(source.minibatches(drawn))
    source.load_state_dict(state)
    assert seen(source.minibatches(drawn)) == unbroken(1)[2:]


def test_a_run_may_resume_with_another_world_size():
    before = stream(world_size=2, rank=0)
    consumed = next(before.minibatches()).global_indices
    trained = []
    for rank in range(4):
        after = stream(world_size=4, rank=rank)
        after.load_state_dict(before.state_dict())
        trained += [i for m in after.minibatches() for micro in m.indices for i in micro]
    assert sorted(consumed + trained) == list(range(70))
    with pytest.raises(ValueError, match="samples_per_minibatch 16, but this run has 8"):
        stream(samples_per_minibatch=8).load_state_dict(before.state_dict())


def test_a_dataset_is_told_its_epoch():
    class Told(Stream):
        def set_epoch(self, epoch: int) -> None:
            self.samples = samples[epoch:] + samples[:epoch]

    source = stream(Told(samples), world_size=1, rank=0)
    firsts = [next(source.minibatches()) for _ in [0]]
    source.set_epoch(2)
    firsts += [next(source.minibatches())]
    trained = [{s[0] // 1000 for batch in m for s in batch} for m in firsts]
    assert trained == [set(range(16)), set(range(2, 18))]


def test_a_dataset_that_deals_itself_to_workers_is_read_whole():
    class Dealt(IterableDataset):
        def __iter__(self):
            info = get_worker_info()
            return itertools.islice(
                samples, info.id if info else 0, None, info.num_workers if info else 1
            )

    source = stream(Dealt())
    assert seen(source.minibatches(loader(source, 2))) == unbroken(1)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_short_last_minibatch_may_be_dropped_and_is_counted(workers):
    source = stream(drop_last=True)
    assert seen(source.minibatches(loader(source, workers))) == unbroken(1)[:4]
    assert (source.epoch, source.step) == (1, 0)
    assert source.lost.tail_samples == 6
    assert source.lost.tokens == sum(len(sample) for sample in samples[64:])


def test_oversize_samples_are_counted():
    source = MinibatchStream(Stream(samples), 1, 40, oversize="drop", samples_per_minibatch=16)
    list(source.minibatches())
    over = [len(sample) for sample in samples if len(sample) > 40]
    assert over and (source.lost.oversize_samples, source.lost.tokens) == (len(over), sum(over))


def test_weights_lengths_and_collate_are_the_users():
    rows = [{"input_ids": sample} for sample in samples]
    source = MinibatchStream(
        rows,
        1,
        64,
        samples_per_minibatch=16,
        length=lambda row: len(row["input_ids"]),
        weight=lambda row: len(row["input_ids"]) - 1,
        collate=lambda items: sum(len(row["input_ids"]) for row in items),
    )
    minibatch = next(source.minibatches(loader(source, 1)))
    assert list(minibatch) == [micro.tokens for micro in minibatch.microbatches]
    assert minibatch.global_tokens == sum(minibatch) - 16


def test_it_can_be_sent_to_workers_that_are_no_forks():
    source = stream(cost=CostModel.preset("7B"), oversize="truncate")
    source.load_state_dict(stream().state_dict() | {"step": 1})
    sent = pickle.loads(pickle.dumps(source))
    assert seen(sent.minibatches()) == seen(source.minibatches())


def test_a_filler_has_the_shortest_sample_to_stand_in():
    source = MinibatchStream(Stream(samples[:3]), 5, 64, "lb-micro", rank=0)
    fillers = []
    for rank in range(5):
        source = MinibatchStream(Stream(samples[:3]), 5, 64, "lb-micro", rank=rank)
        (minibatch,) = source.minibatches(loader(source, 1))
        if list(minibatch) == [[]]:
            fillers.append(minibatch.stand_in)
    assert fillers == [[min(samples[:3], key=len)]] * 2


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(ValueError, match="stream is empty"):
        list(stream(Stream([])).minibatches())
    with pytest.raises(ValueError, match="70 samples, fewer than the 80"):
        list(stream(samples_per_minibatch=80, drop_last=True).minibatches())
    source = stream()
    with pytest.raises(ValueError, match="batch_size=None"):
        list(source.minibatches(DataLoader(samples, batch_size=None)))
    with pytest.raises(ValueError, match="batch_size=None"):
        list(source.minibatches(DataLoader(source)))
    source.load_state_dict(stream().state_dict() | {"step": 9})
    with pytest.raises(RuntimeError, match="ended before step 9"):
        list(source.minibatches())
