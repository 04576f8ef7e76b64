"""Plans of small minibatches beside the optimum that a constraint solver proves."""

import random

import pytest
from headrace.data import CostModel, plan
from ortools.sat.python import cp_model

# Integer costs, exact in the solver: s^2 + 100 s + 5000 a microbatch.
_cost = CostModel(1.0, 100.0, 5000.0)
_solver_limit = 60.0  # in the solver's own units of work, the same on every machine


def case(seed: int) -> tuple[list[int], int, int]:
    """Lengths, ranks, cap."""
    numbers = random.Random(seed)
    ranks = numbers.randint(2, 3)
    lengths = [numbers.randint(10, 100) for _ in range(numbers.randint(ranks, 8))]
    return lengths, ranks, numbers.randint(max(lengths), 250)


class Model:
    """Samples in microbatches [rank][slot] under the cap."""

    def __init__(self, lengths: list[int], ranks: int, cap: int) -> None:
        self.cp = cp_model.CpModel()
        slots = len(lengths)
        costs = [int(_cost.sample(length)) for length in lengths]
        self.loads = []
        placed: list[list[cp_model.IntVar]] = [[] for _ in lengths]
        for rank in range(ranks):
            self.loads.append([])
            before = None
            for slot in range(slots):
                used = self.cp.new_bool_var(f"used {rank} {slot}")
                if before is not None:
                    self.cp.add_implication(used, before)  # empty microbatches come last
                before = used
                inside = [self.cp.new_bool_var(f"{i} in {rank} {slot}") for i in range(slots)]
                for sample, here in enumerate(inside):
                    placed[sample].append(here)
                    self.cp.add_implication(here, used)
                self.cp.add(sum(n * here for n, here in zip(lengths, inside, strict=True)) <= cap)
                cost = sum(c * here for c, here in zip(costs, inside, strict=True))
                self.loads[rank].append(cost + int(_cost.per_microbatch) * used)
        for places in placed:
            self.cp.add_exactly_one(places)
        self.horizon = sum(costs) + slots * int(_cost.per_microbatch)

    def least(self, makespan: cp_model.LinearExprT) -> float:
        self.cp.minimize(makespan)
        solver = cp_model.CpSolver()
        solver.parameters.max_deterministic_time = _solver_limit
        solver.parameters.num_workers = 1
        assert solver.solve(self.cp) == cp_model.OPTIMAL
        return solver.objective_value

    def on_demand(self) -> float:
        last = self.cp.new_int_var(0, self.horizon, "makespan")
        for loads in self.loads:
            self.cp.add(last >= sum(loads))
        for one, other in zip(self.loads, self.loads[1:], strict=False):
            self.cp.add(sum(one) >= sum(other))  # ranks may be exchanged
        return self.least(last)

    def lockstep(self) -> float:
        steps = []
        for slot in range(len(self.loads[0])):
            step = self.cp.new_int_var(0, self.horizon, f"step {slot}")
            for loads in self.loads:
                self.cp.add(step >= loads[slot])
            steps.append(step)
        for earlier, later in zip(steps, steps[1:], strict=False):
            self.cp.add(earlier >= later)  # steps may be exchanged
        return self.least(sum(steps))


@pytest.mark.parametrize("seed", range(8))
def test_lb_mini_is_close_to_the_optimum_and_its_bound_below(seed: int) -> None:
    lengths, ranks, cap = case(seed)
    found = plan(lengths, ranks, cap, "lb-mini", _cost).on_demand
    optimum = Model(lengths, ranks, cap).on_demand()
    assert found.lower_bound <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= found.makespan <= optimum * 1.05


@pytest.mark.parametrize("seed", range(8))
def test_lb_micro_is_close_to_the_optimum_and_its_bound_below(seed: int) -> None:
    lengths, ranks, cap = case(100 + seed)
    found = plan(lengths, ranks, cap, "lb-micro", _cost).lockstep
    optimum = Model(lengths, ranks, cap).lockstep()
    assert found.lower_bound <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= found.makespan <= optimum * 1.05
