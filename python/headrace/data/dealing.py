"""How samples are dealt: which of them make a minibatch, and how a minibatch is planned."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace._engine import CostModel, Permutation, Plan, plan

_default_samples_per_rank = 8
_plan_options = ("least_gain", "equal_samples", "min_microbatches", "communication")


@dataclass(frozen=True)
class Dealing:
    """Everything but the samples; see `minibatches` for the fields."""

    world_size: int
    max_tokens: int
    strategy: str
    samples_per_minibatch: int
    rank: int
    cost: CostModel | None = None
    oversize: str = "error"
    alignment: int = 1
    groups: Sequence[int] | None = None  # of all samples of the dataset
    options: dict[str, Any] = field(default_factory=dict)  # further ones of `plan`

    def __post_init__(self) -> None:
        if self.samples_per_minibatch < 1:
            raise ValueError(
                f"samples_per_minibatch must be at least 1, not {self.samples_per_minibatch}"
            )
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} does not lie in a world of {self.world_size} ranks")
        unknown = sorted(set(self.options) - set(_plan_options))
        if unknown:
            raise TypeError(
                f"unknown option {', '.join(unknown)}: beside those of the signature there are "
                f"{', '.join(_plan_options)}"
            )
        if self.cost is not None and not isinstance(self.cost, CostModel):
            raise TypeError(f"cost={self.cost!r}: give a CostModel, such as CostModel.parse('7B')")

    @classmethod
    def of(
        cls,
        world_size: int,
        max_tokens: int,
        strategy: str,
        samples_per_minibatch: int | None,
        rank: int | None,
        **others: Any,
    ) -> "Dealing":
        if samples_per_minibatch is None:
            samples_per_minibatch = _default_samples_per_rank * world_size
        if rank is None:
            rank = rank_of_this_process(world_size)
        return cls(world_size, max_tokens, strategy, samples_per_minibatch, rank, **others)

    def order(self, samples: int, seed: int, shuffle: bool, drop_last: bool) -> "Order":
        """Of a dataset with so many samples."""
        if self.groups is not None and len(self.groups) != samples:
            raise ValueError(f"there are {len(self.groups)} groups for {samples} samples")
        return Order(samples, self.samples_per_minibatch, seed, shuffle, drop_last)

    def plan(self, lengths: Sequence[int], indices: Sequence[int]) -> Plan:
        """Of one minibatch; `indices` are its samples' in the dataset, which errors name."""
        options = dict(self.options)
        if self.groups is not None:
            options["groups"] = [self.groups[index] for index in indices]
        return plan(
            lengths,
            self.world_size,
            self.max_tokens,
            self.strategy,
            self.cost,
            oversize=self.oversize,
            alignment=self.alignment,
            labels=indices,
            **options,
        )


class Order:
    """Which samples of a dataset make which minibatch: a function of size, seed and epoch alone."""

    def __init__(
        self, size: int, samples_per_minibatch: int, seed: int, shuffle: bool, drop_last: bool
    ) -> None:
        if size == 0:
            raise ValueError("the dataset is empty: there is nothing to train on")
        if not 0 <= seed < 2**64:
            raise ValueError(f"the seed must lie between 0 and 2**64 - 1, not {seed}")
        whole, tail = divmod(size, samples_per_minibatch)
        if drop_last and whole == 0:
            raise ValueError(
                f"drop_last leaves nothing: the dataset has {size} samples, fewer than the "
                f"{samples_per_minibatch} of a minibatch"
            )
        self.steps = whole if drop_last or tail == 0 else whole + 1
        self.facts = {
            "seed": seed,
            "samples": size,
            "samples_per_minibatch": samples_per_minibatch,
            "shuffle": int(shuffle),
            "drop_last": int(drop_last),
        }
        self._size, self._seed, self._shuffle = size, seed, shuffle
        self._per_minibatch = samples_per_minibatch
        self._shuffled: tuple[int, Permutation] | None = None  # of the epoch asked for last

    def indices(self, epoch: int, step: int) -> list[int]:
        begin = step * self._per_minibatch
        return self._slice(epoch, begin, min(begin + self._per_minibatch, self._size))

    def tail(self, epoch: int) -> list[int]:
        """What drop_last leaves out."""
        trained = min(self.steps * self._per_minibatch, self._size)
        return self._slice(epoch, trained, self._size)

    def _slice(self, epoch: int, begin: int, end: int) -> list[int]:
        if not self._shuffle:
            return list(range(begin, end))
        if self._shuffled is None or self._shuffled[0] != epoch:
            self._shuffled = epoch, Permutation(self._size, self._seed, epoch)
        return self._shuffled[1].slice(begin, end)


def rank_of_this_process(world_size: int) -> int:
    # A process that has not imported torch.distributed cannot have initialised it.
    distributed = sys.modules.get("torch.distributed")
    if distributed and distributed.is_available() and distributed.is_initialized():
        if distributed.get_world_size() != world_size:
            raise ValueError(
                f"the process group has {distributed.get_world_size()} ranks, but the minibatches "
                f"are for {world_size}; give rank= explicitly"
            )
        return distributed.get_rank()
    if world_size == 1:
        return 0
    raise ValueError(
        f"which of the {world_size} ranks is this? Initialise torch.distributed or give rank="
    )
