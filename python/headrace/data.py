"""Balanced minibatches of variable-length samples, planned alike on every rank without talking."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from headrace._engine import CostModel, Microbatch, Permutation, Piece, Plan, plan

__all__ = ["CostModel", "Minibatch", "Minibatches", "Plan", "minibatches", "plan"]

_default_samples_per_rank = 8


class Dataset(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


class Minibatch:
    """What this rank trains between two optimizer steps: iterate over it for microbatches, each a
    list of dataset items. A filler (strategy "lb-micro" with too few samples) is an empty list:
    on-demand training skips it, lockstep runs `stand_in` with weight zero in its place.

    `indices` has the dataset indices of the same microbatches. `plan`, `plan_digest` and
    `global_tokens` (the weight of all ranks' samples together) are the same on every rank. Samples
    of the plan are positions in `global_indices`.
    """

    def __init__(
        self,
        load: Callable[[Piece], Any],
        plan: Plan,
        rank: int,
        epoch: int,
        step: int,
        global_indices: list[int],
        global_tokens: float,
    ) -> None:
        self._load = load
        self.plan = plan
        self.rank = rank
        self.epoch = epoch
        self.step = step  # within the epoch
        self.global_indices = global_indices
        self.global_tokens = global_tokens
        self.plan_digest = plan.digest([epoch, step, *global_indices])
        self.microbatches: list[Microbatch] = plan.ranks[rank]
        self.indices = [[global_indices[s] for s in micro.samples] for micro in self.microbatches]

    def __len__(self) -> int:
        return len(self.microbatches)

    def __iter__(self) -> Iterator[list[Any]]:
        for micro in self.microbatches:
            yield [self._load(piece) for piece in micro.pieces]

    @property
    def stand_in(self) -> Any:
        """The shortest item of the whole minibatch, for the forward of a filler, weight zero."""
        pieces = (p for micros in self.plan.ranks for micro in micros for p in micro.pieces)
        return self._load(min(pieces, key=lambda piece: (piece.tokens, piece.sample)))


class Minibatches:
    """See `minibatches`. A `for` runs to the end of the epoch; the next starts the next epoch."""

    def __init__(
        self,
        dataset: Dataset,
        world_size: int,
        max_tokens: int,
        *,
        strategy: str,
        samples_per_minibatch: int,
        rank: int,
        seed: int,
        cost: CostModel | None,
        length: Callable[[Any], int] | Sequence[int],
        weight: Callable[[Any], float] | None,
        oversize: str,
        cut: Callable[[Any, int, int], Any],
        alignment: int,
        shuffle: bool,
    ) -> None:
        if len(dataset) == 0:
            raise ValueError("the dataset is empty: there is nothing to train on")
        if samples_per_minibatch < 1:
            raise ValueError(
                f"samples_per_minibatch must be at least 1, not {samples_per_minibatch}"
            )
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} does not lie in a world of {world_size} ranks")
        if not 0 <= seed < 2**64:
            raise ValueError(f"the seed must lie between 0 and 2**64 - 1, not {seed}")
        if not callable(length) and len(length) != len(dataset):
            raise ValueError(f"there are {len(length)} lengths for {len(dataset)} samples")
        self.world_size = world_size
        self.rank = rank
        self.samples_per_minibatch = samples_per_minibatch
        self.seed = seed
        self.epoch = 0  # of the next minibatch
        self.step = 0  # of the next minibatch, within its epoch
        self._dataset = dataset
        self._length = length
        self._weight = weight
        self._cut = cut
        self._shuffle = shuffle
        self._plan = lambda lengths, labels: plan(
            lengths,
            world_size,
            max_tokens,
            strategy,
            cost,
            oversize=oversize,
            alignment=alignment,
            labels=labels,
        )

    def __len__(self) -> int:
        """Minibatches in an epoch; the last may have fewer samples."""
        return -(-len(self._dataset) // self.samples_per_minibatch)

    def __iter__(self) -> Iterator[Minibatch]:
        epoch = self.epoch
        order = Permutation(len(self._dataset), self.seed, epoch) if self._shuffle else None
        while self.epoch == epoch:
            minibatch = self._make(order, epoch, self.step)
            self.step += 1
            if self.step == len(self):
                self.epoch, self.step = epoch + 1, 0
            yield minibatch

    def endless(self) -> Iterator[Minibatch]:
        """Epoch after epoch, without end."""
        while True:
            yield from self

    def state_dict(self) -> dict[str, int]:
        """Where to go on. Taken while a minibatch is being trained, it names the one after."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "seed": self.seed,
            "samples": len(self._dataset),
            "samples_per_minibatch": self.samples_per_minibatch,
            "shuffle": int(self._shuffle),
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on where `state` was taken, with the same plans; the world size may have changed."""
        for name, here in self.state_dict().items():
            if name not in state:
                raise ValueError(f"the saved state has no {name!r}")
            if name not in ("epoch", "step") and state[name] != here:
                raise ValueError(
                    f"the saved state has {name} {state[name]}, but this run has {here}: it would "
                    "train on other samples than the run that it resumes"
                )
        epoch, step = state["epoch"], state["step"]
        if epoch < 0 or not 0 <= step < len(self):
            raise ValueError(f"the saved state has no such place: epoch {epoch}, step {step}")
        self.epoch, self.step = epoch, step

    def _make(self, order: Permutation | None, epoch: int, step: int) -> Minibatch:
        begin = step * self.samples_per_minibatch
        end = min(begin + self.samples_per_minibatch, len(self._dataset))
        indices = order.slice(begin, end) if order else list(range(begin, end))
        items: dict[int, Any] = {}  # position in the minibatch -> item, loaded once

        def item(position: int) -> Any:
            if position not in items:
                items[position] = self._dataset[indices[position]]
            return items[position]

        if callable(self._length):
            lengths = [operator.index(self._length(item(i))) for i in range(len(indices))]
        else:
            lengths = [operator.index(self._length[index]) for index in indices]

        def load(piece: Piece) -> Any:
            if piece.tokens == lengths[piece.sample]:
                return item(piece.sample)
            return self._cut(item(piece.sample), piece.begin, piece.begin + piece.tokens)

        made = self._plan(lengths, indices)
        if self._weight is None:
            tokens: float = made.tokens
        else:
            # Over all ranks' pieces in plan order, so that every rank adds the same numbers alike.
            pieces = [p for micros in made.ranks for micro in micros for p in micro.pieces]
            tokens = sum(self._weight(load(piece)) for piece in pieces)
        return Minibatch(load, made, self.rank, epoch, step, indices, tokens)


def _token_count(item: Any) -> int:
    """len(item), where that can be a number of tokens."""
    if isinstance(item, Mapping | tuple):
        raise TypeError(
            f"the len() of a {type(item).__name__} counts its fields, not its tokens; give "
            "minibatches(length=...) a function, such as lambda item: len(item['input_ids']), or "
            "the list of all lengths"
        )
    return len(item)


def minibatches(
    dataset: Dataset,
    world_size: int,
    max_tokens: int,
    strategy: str = "lb-mini",
    *,
    samples_per_minibatch: int | None = None,
    rank: int | None = None,
    seed: int = 0,
    cost: CostModel | None = None,
    length: Callable[[Any], int] | Sequence[int] = _token_count,
    weight: Callable[[Any], float] | None = None,
    oversize: str = "error",
    cut: Callable[[Any, int, int], Any] | None = None,
    alignment: int = 1,
    shuffle: bool = True,
) -> Minibatches:
    """This rank's part of every minibatch, balanced over `world_size` ranks.

    Every rank plans the whole minibatch for itself and gets the same plan; `Minibatch.plan_digest`
    proves it. The result can be resumed: `state_dict()` is a few integers.

    max_tokens: no microbatch holds more, ever.
    strategy: "lb-mini" (ranks may have different counts: on-demand), "lb-micro" (equal counts:
        lockstep) or "none" (round robin, one sample a microbatch).
    samples_per_minibatch: over all ranks together; 8 a rank unless given.
    rank: of this process in the world; torch.distributed's unless given.
    seed: of the order of samples, which depends on it and the epoch alone, on every platform.
    cost: what a sample costs by its length; the 1.5B preset unless given.
    length: tokens of an item, or the lengths of all samples, which saves loading other ranks'
        items; len(item) unless given, which dict and tuple items must not leave to it.
    weight: target tokens that count in an item's loss, for `global_tokens`; its length unless
        given. Called on every rank for every item of the minibatch.
    oversize: what to do with a sample longer than max_tokens: "error", "truncate", "drop" or
        "split"; the plan says how many tokens that lost.
    cut: (item, begin, end) -> item, for "truncate" and "split"; a slice unless given.
    alignment: lengths count towards max_tokens rounded up to a multiple of this.
    shuffle: False keeps the dataset's order.
    """
    if samples_per_minibatch is None:
        samples_per_minibatch = _default_samples_per_rank * world_size
    return Minibatches(
        dataset,
        world_size,
        max_tokens,
        strategy=strategy,
        samples_per_minibatch=samples_per_minibatch,
        rank=_rank_of_this_process(world_size) if rank is None else rank,
        seed=seed,
        cost=cost,
        length=length,
        weight=weight,
        oversize=oversize,
        cut=cut or _slice,
        alignment=alignment,
        shuffle=shuffle,
    )


def _slice(item: Any, begin: int, end: int) -> Any:
    try:
        return item[begin:end]
    except (TypeError, KeyError) as error:
        raise TypeError(
            f"a {type(item).__name__} cannot be cut by a slice; give minibatches(cut=...) a "
            "function (item, begin, end) -> item"
        ) from error


def _rank_of_this_process(world_size: int) -> int:
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
