"""What one rank trains between two optimizer steps."""

import copyreg
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace._engine import CostModel, Microbatch, Piece, Plan


def _from_json(text: str) -> Plan:
    return Plan.from_json(text)


# A loader's workers are sent cost models and send plans.
copyreg.pickle(Plan, lambda plan: (_from_json, (plan.to_json(),)))
copyreg.pickle(
    CostModel, lambda cost: (CostModel, (cost.quadratic, cost.linear, cost.per_microbatch))
)


class Minibatch:
    """What this rank trains between two optimizer steps: iterate over it for microbatches, each a
    list of dataset items or what a collator made of them. A filler (strategy "lb-micro" with too
    few samples) is an empty list, or what the collator makes of one: on-demand training skips it,
    lockstep runs `stand_in` with weight zero in its place.

    `indices` has the dataset indices of the same microbatches. `plan`, `plan_digest` and
    `global_tokens` (the weight of all ranks' samples together) are the same on every rank. Samples
    of the plan are positions in `global_indices`.
    """

    def __init__(
        self,
        plan: Plan,
        rank: int,
        epoch: int,
        step: int,
        global_indices: list[int],
        global_tokens: float,
        batches: Iterable[Any],
        stand_in: Callable[[], Any],
    ) -> None:
        self.plan = plan
        self.rank = rank
        self.epoch = epoch
        self.step = step  # within the epoch
        self.global_indices = global_indices
        self.global_tokens = global_tokens
        self.plan_digest = plan.digest([epoch, step, *global_indices])
        self.microbatches: list[Microbatch] = plan.ranks[rank]
        self.indices = [[global_indices[s] for s in micro.samples] for micro in self.microbatches]
        self._batches = batches
        self._stand_in = stand_in

    def __len__(self) -> int:
        return len(self.microbatches)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)

    @property
    def stand_in(self) -> Any:
        """The shortest item of the whole minibatch, for the forward of a filler, weight zero."""
        return self._stand_in()


def pieces_of(plan: Plan) -> list[Piece]:
    """Of all ranks, in plan order."""
    return [piece for micros in plan.ranks for micro in micros for piece in micro.pieces]


def shortest(plan: Plan) -> Piece:
    return min(pieces_of(plan), key=lambda piece: (piece.tokens, piece.sample))
