"""headrace.data: balanced, resumable minibatches that every rank plans alike."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from headrace.data import (
    CostModel,
    Minibatches,
    Plan,
    balanced_partitions,
    minibatches,
    plan,
)
from headrace.errors import OperationError

_data = Path(__file__).parents[1] / "data"
_cases = [json.loads(line) for line in (_data / "balance_cases.jsonl").read_text().splitlines()]


def tokens_of(count: int, longest: int = 50, seed: int = 0) -> list[list[int]]:
    """Samples as lists of tokens; token j of sample i is 1000 i + j."""
    lengths = random.Random(seed)
    return [[1000 * i + j for j in range(lengths.randint(1, longest))] for i in range(count)]


def plans(loader: Minibatches) -> list[tuple[int, list[list[int]]]]:
    return [(minibatch.plan_digest, minibatch.indices) for minibatch in loader]


# ---- plan


@pytest.mark.parametrize("case", _cases, ids=lambda case: case["id"])
def test_reported_case(case):
    repeat = case.get("lengths_repeat")
    lengths = [repeat["value"]] * repeat["count"] if repeat else case["lengths"]
    expect = dict(case["expect"])
    words = expect.pop("error", None)
    if words:
        with pytest.raises(OperationError) as raised:
            plan(lengths, case["world_size"], case["cap"], case["strategy"])
        assert all(word in str(raised.value) for word in words)
        return
    made = plan(lengths, case["world_size"], case["cap"], case["strategy"])
    micros = [micro for rank in made.ranks for micro in rank]
    found = {
        "microbatches": len(micros),
        "max_tokens": max(micro.tokens for micro in micros),
        "sizes": sorted((sum(len(m.samples) for m in rank) for rank in made.ranks), reverse=True),
        "each_once": sorted(s for m in micros for s in m.samples) == list(range(len(lengths))),
    }
    assert expect and expect == {name: found[name] for name in expect}


def test_plan_shows_what_it_predicts():
    made = plan([8, 8, 8, 4, 4], 2, 8, "none", CostModel(0.0, 1.0))
    assert [[micro.samples for micro in rank] for rank in made.ranks] == [
        [[0], [2], [4]],
        [[1], [3]],
    ]
    assert made.rank_costs == [20.0, 12.0]
    assert made.on_demand.makespan == 20.0
    assert made.on_demand.bubble == pytest.approx(1 - 32 / 40)
    assert made.lockstep.makespan == 20.0
    assert made.recommendation == "lockstep"
    assert (made.strategy, made.cap, made.world_size, made.tokens) == ("none", 8, 2, 32)
    assert not made.equal_counts
    padded = made.padded_for_lockstep()
    assert padded.equal_counts
    assert padded.ranks[1][2].filler
    assert padded.digest() != made.digest()


def test_plan_goes_through_json():
    made = plan([8, 30, 8, 4, 4], 2, 16, oversize="split")
    assert made.oversize == [1]
    assert Plan.from_json(made.to_json()) == made
    assert json.loads(made.to_json())["digest"] == f"{made.digest():016x}"
    with pytest.raises(OperationError, match="not JSON"):
        Plan.from_json("no")


def test_cost_models():
    counted = CostModel.from_shape(
        hidden=4, layers=1, heads=1, kv_heads=1, head_size=4, intermediate=8, vocabulary=16
    )
    assert counted.linear == 6 * (4 * 4 * 4 + 3 * 4 * 8 + 4 * 16)
    assert counted.quadratic == 6 * 4
    fitted = CostModel.fit([(10, 10.0), (20, 40.0), (40, 160.0)])
    assert fitted.quadratic == pytest.approx(0.1)
    assert fitted.linear == pytest.approx(0.0, abs=1e-12)
    assert CostModel.preset("7B").sample(32000) == pytest.approx(4.348 + 8.768)
    with pytest.raises(OperationError, match="'13B'"):
        CostModel.preset("13B")
    with pytest.raises(OperationError, match="quadratic"):
        CostModel(-1.0, 1.0)


# ---- partitions


@pytest.mark.parametrize("equal_size", [False, True])
def test_balanced_partitions_have_verls_contract(equal_size):
    draw = random.Random(3)
    for parts in (1, 2, 3, 8):
        lengths = [draw.randint(1, 5000) for _ in range(parts * 12)]
        made = balanced_partitions(seqlen_list=lengths, k_partitions=parts, equal_size=equal_size)
        assert len(made) == parts
        assert sorted(i for part in made for i in part) == list(range(len(lengths)))
        assert all(part == sorted(part) and part for part in made)
        assert not equal_size or {len(part) for part in made} == {12}
        sums = [sum(lengths[i] for i in part) for part in made]
        assert max(sums) - min(sums) <= 0.02 * max(sums)
        in_turn = [sum(lengths[first::parts]) for first in range(parts)]
        assert max(sums) <= max(in_turn)
    assert balanced_partitions([3.5, 1.25, 2.25], 2) == [[0], [1, 2]]
    assert balanced_partitions(np.array([7, 7]), 2) in ([[0], [1]], [[1], [0]])


def test_partitions_that_cannot_be_made_are_refused_as_verl_does():
    with pytest.raises(AssertionError, match=r"number of items:\[2\] < k_partitions:\[3\]"):
        balanced_partitions([1, 2], 3)
    with pytest.raises(AssertionError, match="5 % 2 != 0"):
        balanced_partitions([1, 2, 3, 4, 5], 2, equal_size=True)


# ---- minibatches


@pytest.mark.parametrize("strategy", ["none", "lb-micro", "lb-mini"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_ranks_together_train_every_sample_once(strategy, world_size):
    dataset = tokens_of(100)
    ranks = [
        list(minibatches(dataset, world_size, 64, strategy, samples_per_minibatch=24, rank=rank))
        for rank in range(world_size)
    ]
    assert [len(rank) for rank in ranks] == [5] * world_size  # 4 of 24 samples and one of 4
    trained = []
    for same_step in zip(*ranks, strict=True):
        assert len({minibatch.plan_digest for minibatch in same_step}) == 1
        assert len({minibatch.global_tokens for minibatch in same_step}) == 1
        in_step = 0
        for minibatch in same_step:
            micros = list(minibatch)
            assert len(micros) == len(minibatch) == len(minibatch.indices)
            for micro, indices in zip(micros, minibatch.indices, strict=True):
                assert micro == [dataset[i] for i in indices]
                assert sum(map(len, micro)) <= 64
                in_step += sum(map(len, micro))
                trained += indices
        assert in_step == same_step[0].global_tokens
    assert sorted(trained) == list(range(100))


@pytest.mark.parametrize("strategy", ["none", "lb-micro", "lb-mini"])
def test_a_resumed_run_has_the_same_plans(strategy):
    dataset = tokens_of(70)

    def loader() -> Minibatches:
        return minibatches(dataset, 3, 64, strategy, samples_per_minibatch=16, rank=1, seed=5)

    whole = loader()
    uninterrupted = plans(whole) + plans(whole)
    assert len(uninterrupted) == 10
    for stop in range(10):
        first = loader()
        done = []
        state = first.state_dict()
        for minibatch in first.endless():
            if len(done) == stop:
                break
            done.append((minibatch.plan_digest, minibatch.indices))
            state = json.loads(json.dumps(first.state_dict()))
        assert all(type(value) is int for value in state.values())
        second = loader()
        second.load_state_dict(state)
        while second.epoch < 2:
            done += plans(second)
        assert done == uninterrupted


def test_a_run_may_resume_with_another_world_size():
    dataset = tokens_of(40)
    before = minibatches(dataset, 2, 64, samples_per_minibatch=8, rank=0)
    consumed = next(iter(before)).global_indices
    after = minibatches(dataset, 4, 64, samples_per_minibatch=8, rank=3)
    after.load_state_dict(before.state_dict())
    rest = [i for minibatch in after for i in minibatch.global_indices]
    assert sorted(consumed + rest) == list(range(40))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 6}, "seed 5, but this run has 6"),
        ({"samples_per_minibatch": 4}, "samples_per_minibatch 8, but this run has 4"),
        ({"shuffle": False}, "shuffle 1, but this run has 0"),
    ],
)
def test_state_of_another_run_is_refused(changed, named):
    options = {"samples_per_minibatch": 8, "rank": 0, "seed": 5}
    state = minibatches(tokens_of(40), 2, 64, **options).state_dict()
    with pytest.raises(ValueError, match=named):
        minibatches(tokens_of(40), 2, 64, **(options | changed)).load_state_dict(state)
    with pytest.raises(ValueError, match="samples 40, but this run has 41"):
        minibatches(tokens_of(41), 2, 64, **options).load_state_dict(state)
    with pytest.raises(ValueError, match="no 'epoch'"):
        minibatches(tokens_of(40), 2, 64, **options).load_state_dict({"step": 0})
    with pytest.raises(ValueError, match="step 5"):
        minibatches(tokens_of(40), 2, 64, **options).load_state_dict(state | {"step": 5})


def test_order_changes_with_epoch_and_seed_and_not_with_anything_else():
    dataset = tokens_of(32)

    def order(loader: Minibatches) -> list[int]:
        return [i for minibatch in loader for i in minibatch.global_indices]

    loader = minibatches(dataset, 1, 64, samples_per_minibatch=8, seed=1)
    first, second = order(loader), order(loader)
    random.seed(99)
    assert first != second
    assert order(minibatches(dataset, 2, 64, samples_per_minibatch=4, rank=1, seed=1)) == first
    assert order(minibatches(dataset, 1, 64, samples_per_minibatch=8, seed=2)) != first
    kept = minibatches(dataset, 1, 64, samples_per_minibatch=8, shuffle=False)
    assert order(kept) == list(range(32))


def test_order_is_the_documented_one():
    """SplitMix64, seeded by (first number of seed) + epoch; Fisher-Yates from the end; draws of
    just enough bits, those out of range thrown away. Here once more, so that it can never change.
    """
    mask = 2**64 - 1

    def numbers(state: int) -> Iterator[int]:
        while True:
            state = (state + 0x9E3779B97F4A7C15) & mask
            z = state
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
            yield z ^ (z >> 31)

    seed, epoch, size = 2**64 - 3, 0, 1000
    draws = numbers((next(numbers(seed)) + epoch) & mask)
    expected = list(range(size))
    for left in range(size, 1, -1):
        bits = max((left - 1).bit_length(), 1)
        draw = next(draws) >> (64 - bits)
        while draw >= left:
            draw = next(draws) >> (64 - bits)
        expected[left - 1], expected[draw] = expected[draw], expected[left - 1]
    loader = minibatches(tokens_of(size), 1, 64, samples_per_minibatch=size, seed=seed)
    assert next(iter(loader)).global_indices == expected


def test_fewer_samples_than_ranks():
    dataset = tokens_of(3)
    mini = [next(iter(minibatches(dataset, 5, 64, rank=rank))) for rank in range(5)]
    assert sorted(len(minibatch) for minibatch in mini) == [0, 0, 1, 1, 1]
    micro = [next(iter(minibatches(dataset, 5, 64, "lb-micro", rank=rank))) for rank in range(5)]
    assert [len(minibatch) for minibatch in micro] == [1] * 5
    assert sorted(len(next(iter(minibatch))) for minibatch in micro) == [0, 0, 1, 1, 1]
    assert micro[0].stand_in == min(dataset, key=len)


def test_weight_counts_the_targets_of_all_ranks():
    dataset = tokens_of(20)
    expected = sum(len(sample) - 1 for sample in dataset)
    for rank in range(3):
        loader = minibatches(
            dataset, 3, 64, samples_per_minibatch=20, rank=rank, weight=lambda item: len(item) - 1
        )
        assert next(iter(loader)).global_tokens == expected


def test_lengths_given_save_loading_other_ranks_items():
    class Recorded:
        def __init__(self) -> None:
            self.loaded: list[int] = []
            self.samples = tokens_of(30)

        def __len__(self) -> int:
            return len(self.samples)

        def __getitem__(self, index: int) -> list[int]:
            self.loaded.append(index)
            return self.samples[index]

    dataset = Recorded()
    lengths = [len(sample) for sample in dataset.samples]
    for minibatch in minibatches(dataset, 3, 64, samples_per_minibatch=10, rank=2, length=lengths):
        dataset.loaded.clear()
        list(minibatch)
        assert sorted(dataset.loaded) == sorted(i for micro in minibatch.indices for i in micro)
        assert len(dataset.loaded) < 10


def test_oversize_policies():
    dataset = [list(range(10)), list(range(100, 125)), list(range(200, 205))]

    def items(oversize: str) -> tuple[list[list[int]], int, int]:
        minibatch = next(iter(minibatches(dataset, 1, 10, oversize=oversize)))
        got = sorted(item for micro in minibatch for item in micro)
        return got, minibatch.global_tokens, minibatch.plan.tokens_lost

    with pytest.raises(OperationError, match="index 1 has 25 tokens, more than the cap of 10"):
        items("error")
    whole = [dataset[0], dataset[2]]
    assert items("drop") == (sorted(whole), 15, 25)
    assert items("truncate") == (sorted([*whole, list(range(100, 110))]), 25, 15)
    pieces = [list(range(100, 109)), list(range(109, 117)), list(range(117, 125))]
    assert items("split") == (sorted([*whole, *pieces]), 40, 0)
    with pytest.raises(OperationError, match="'shorten'"):
        items("shorten")


def test_the_fields_of_an_item_are_not_its_tokens():
    for item in ({"input_ids": [1, 2, 3]}, ([1, 2, 3], [1, 2, 3])):
        with pytest.raises(TypeError, match="counts its fields, not its tokens"):
            list(minibatches([item], 1, 64))


def test_an_item_that_cannot_be_sliced_needs_cut():
    dataset = [{"ids": list(range(30))}]
    options = {"length": lambda item: len(item["ids"]), "oversize": "truncate"}
    with pytest.raises(TypeError, match="dict cannot be cut"):
        list(next(iter(minibatches(dataset, 1, 10, **options))))
    loader = minibatches(
        dataset, 1, 10, cut=lambda item, begin, end: {"ids": item["ids"][begin:end]}, **options
    )
    assert list(next(iter(loader))) == [[{"ids": list(range(10))}]]


def test_errors_name_the_dataset_index():
    dataset = [[0]] * 20 + [[0] * 9] + [[0]] * 20
    with pytest.raises(OperationError, match="index 20 has 9 tokens"):
        list(minibatches(dataset, 2, 8, samples_per_minibatch=3, rank=0, seed=4))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sample_per_minibatch": 3}, "unknown option sample_per_minibatch: .* least_gain"),
        ({"cost": "7B"}, r"cost='7B': give a CostModel"),
    ],
)
def test_a_wrong_option_is_refused_at_once(options, named):
    with pytest.raises(TypeError, match=named):
        minibatches([[0]], 2, 8, rank=0, **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rank": 2}, "rank 2 does not lie in a world of 2"),
        ({"rank": -1}, "rank -1"),
        ({}, "which of the 2 ranks"),
        (
            {"rank": 0, "samples_per_minibatch": 0},
            "samples_per_minibatch must be at least 1, not 0",
        ),
        ({"rank": 0, "seed": -1}, "seed must lie between 0 and .*, not -1"),
        ({"rank": 0, "length": [1, 2]}, "2 lengths for 5 samples"),
    ],
)
def test_bad_arguments_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        minibatches(tokens_of(5), 2, 64, **options)


def test_bad_arguments_of_the_plan_are_named():
    with pytest.raises(ValueError, match="dataset is empty"):
        minibatches([], 2, 64, rank=0)
    with pytest.raises(OperationError, match="no balancing strategy 'best'"):
        list(minibatches(tokens_of(5), 2, 64, "best", rank=0))
    with pytest.raises(OperationError, match="cap of a microbatch must be at least 1, not 0"):
        list(minibatches(tokens_of(5), 2, 0, rank=0))


def test_rank_comes_from_the_process_group(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        assert minibatches(tokens_of(5), 1, 64).rank == 0
        with pytest.raises(ValueError, match="process group has 1 ranks, .* are for 2"):
            minibatches(tokens_of(5), 2, 64)
        assert minibatches(tokens_of(5), 2, 64, rank=1).rank == 1
    finally:
        distributed.destroy_process_group()


def test_a_short_last_minibatch_may_be_dropped_and_is_counted():
    dataset = tokens_of(20)
    loader = minibatches(dataset, 1, 64, samples_per_minibatch=8, drop_last=True)
    assert len(loader) == 2
    trained = [i for minibatch in loader for i in minibatch.global_indices]
    left = set(range(20)) - set(trained)
    assert (len(trained), loader.lost.tail_samples) == (16, 4)
    assert loader.lost.tokens == sum(len(dataset[i]) for i in left)
    with pytest.raises(ValueError, match="20 samples, fewer than the 24"):
        minibatches(dataset, 1, 64, samples_per_minibatch=24, drop_last=True)


def test_what_oversize_loses_is_counted_through_a_resumed_run():
    dataset = [list(range(10)), list(range(25)), list(range(5))]
    dropping = minibatches(dataset, 1, 10, samples_per_minibatch=3, oversize="drop")
    list(dropping)
    assert (dropping.lost.oversize_samples, dropping.lost.tokens) == (1, 25)
    resumed = minibatches(dataset, 1, 10, samples_per_minibatch=3, oversize="drop")
    resumed.load_state_dict(dropping.state_dict())
    list(resumed)
    assert (resumed.lost.oversize_samples, resumed.lost.tokens) == (2, 50)
    cutting = minibatches(dataset, 1, 10, oversize="truncate")
    list(cutting)
    assert (cutting.lost.oversize_samples, cutting.lost.tokens) == (0, 15)


def test_samples_of_a_group_stay_on_one_rank():
    dataset = tokens_of(48)
    groups = [index // 4 for index in range(48)]
    rank_of = {}
    for rank in range(3):
        options = {"samples_per_minibatch": 16, "shuffle": False, "groups": groups}
        for minibatch in minibatches(dataset, 3, 64, rank=rank, **options):
            for index in (i for micro in minibatch.indices for i in micro):
                assert rank_of.setdefault(groups[index], rank) == rank
    assert set(rank_of.values()) == {0, 1, 2} and len(rank_of) == 12


def test_further_options_of_the_plan_may_be_given():
    counts = [
        sum(map(len, next(iter(minibatches(tokens_of(20), 3, 64, rank=rank, **options))).indices))
        for rank in range(3)
        for options in [{"samples_per_minibatch": 20, "equal_samples": True}]
    ]
    assert sorted(counts) == [6, 7, 7]


def test_an_epoch_may_be_chosen():
    dataset = tokens_of(12)
    loader = minibatches(dataset, 1, 64, samples_per_minibatch=4)
    epochs = [plans(loader) for _ in range(3)]
    loader.set_epoch(1)
    first = next(iter(loader))
    loader.set_epoch(1)  # as a resumed run's loop does: it stays where it is
    assert [(first.plan_digest, first.indices), *plans(loader)] == epochs[1]
    with pytest.raises(ValueError, match="-1"):
        loader.set_epoch(-1)


def test_it_imports_no_torch():
    code = "import sys, headrace.data; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
