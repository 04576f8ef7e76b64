"""The balancer through the bindings: strategies, options, lower bounds, parts, workloads."""

import pytest
from headrace._engine import karmarkar_karp, plan_batch, workload_lengths, workloads
from headrace.data import CommunicationModel, CostModel, Plan, minibatches, plan
from headrace.errors import OperationError

_strategies = ["none", "sorted", "lb-micro", "lb-mini", "verl-native", "verl-optimized"]
_lengths = workload_lengths("longalign", 64, 1)


def samples_by_rank(made: Plan) -> list[list[int]]:
    return [sorted(s for micro in rank for s in micro.samples) for rank in made.ranks]


@pytest.mark.parametrize("strategy", _strategies)
def test_every_strategy_plans_every_sample_once_above_its_bound(strategy: str) -> None:
    made = plan(_lengths, 8, 65536, strategy)
    assert made.strategy == strategy
    assert sorted(s for rank in samples_by_rank(made) for s in rank) == list(range(64))
    assert max(micro.tokens for rank in made.ranks for micro in rank) <= 65536
    for prediction in (made.lockstep, made.on_demand):
        assert 0 < prediction.lower_bound <= prediction.makespan
    assert Plan.from_json(made.to_json()) == made


def test_groups_stay_on_one_rank_and_counts_are_equal() -> None:
    groups = [sample % 16 for sample in range(64)]
    for strategy in _strategies:
        made = plan(_lengths, 8, 65536, strategy, groups=groups, equal_samples=True)
        by_rank = samples_by_rank(made)
        assert [len(samples) for samples in by_rank] == [8] * 8
        assert all(len({groups[s] for s in samples}) == 2 for samples in by_rank)


def test_equal_samples_that_groups_prevent_are_an_error() -> None:
    with pytest.raises(OperationError, match="rank 0 would have 3 samples and rank 1 only 1"):
        plan([4] * 4, 2, 8, groups=[7, 7, 7, 9], equal_samples=True)


def test_min_microbatches_splits_what_would_be_one() -> None:
    (rank,) = plan([2, 2, 2], 1, 100, min_microbatches=2).ranks
    assert [micro.filler for micro in rank] == [False, False]
    (rank,) = plan([2], 1, 100, min_microbatches=2).ranks
    assert [micro.filler for micro in rank] == [False, True]


def test_plan_batch_keeps_places_of_the_batch() -> None:
    plans = plan_batch(_lengths, 2, 8, 65536, "verl-native")
    places = sorted(s for made in plans for rank in samples_by_rank(made) for s in rank)
    assert places == list(range(64))
    assert all(made.equal_counts for made in plans)


def test_karmarkar_karp_gives_indices_costliest_part_first() -> None:
    costs = [4.0, 5.0, 6.0, 7.0, 8.0]
    parts = karmarkar_karp(costs, 2)
    assert [sum(costs[i] for i in part) for part in parts] == [16.0, 14.0]
    assert [len(part) for part in karmarkar_karp([1.0] * 6, 4, equal_size=True)] == [2, 2, 1, 1]


@pytest.mark.parametrize("costs", [[-1.0], [float("nan")], [float("inf")]], ids=str)
def test_karmarkar_karp_refuses_costs_without_meaning(costs: list[float]) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        karmarkar_karp(costs, 2)
    with pytest.raises(ValueError, match="at least 1 part"):
        karmarkar_karp([1.0], 0)


def test_workloads_are_the_same_for_the_same_seed() -> None:
    assert "longalign" in workloads()
    assert workload_lengths("longalign", 4, 1) == [13595, 18457, 46554, 11728]
    with pytest.raises(OperationError, match="'aime'"):
        workload_lengths("aime", 4)


def test_a_fixed_cost_of_microbatches_is_in_the_bound() -> None:
    made = plan([6, 6, 6], 2, 10, "lb-mini", CostModel(0.0, 1.0, 1000.0))
    assert made.on_demand.lower_bound == made.on_demand.makespan == 2012.0


def test_communication_decides_what_a_plan_recommends() -> None:
    linear = CostModel(0.0, 1.0)
    even = [5] * 4
    assert plan(even, 2, 10, "lb-micro", linear).recommendation == "lockstep"
    dear = CommunicationModel(all_gather=4.0, reduce_scatter=4.0, gather=1.0, push=1.0)
    for made in (
        plan(even, 2, 10, "lb-micro", linear, communication=dear),
        *plan_batch(even, 1, 2, 10, "lb-micro", linear, communication=dear),
        next(
            iter(
                minibatches(
                    [[0] * 5] * 4,
                    2,
                    10,
                    "lb-micro",
                    rank=0,
                    cost=linear,
                    communication=dear,
                )
            )
        ).plan,
    ):
        assert made.recommendation == "on-demand"
    uneven = [8, 2, 2, 8]
    assert plan(uneven, 2, 8, "none", linear).recommendation == "on-demand"
    slow_push = CommunicationModel(push=10.0)
    assert plan(uneven, 2, 8, "none", linear, communication=slow_push).recommendation == "lockstep"
    with pytest.raises(OperationError, match="push is -1"):
        CommunicationModel(push=-1.0)
