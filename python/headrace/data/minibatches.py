"""Minibatches of a map-style dataset, loaded in this process."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from headrace._engine import CostModel, Microbatch
from headrace.data.dealing import Dealing, Order
from headrace.data.items import Cut, Items, Length, Weight, lengths_by, slice_of, token_count
from headrace.data.minibatch import Minibatch
from headrace.data.place import Place


class Dataset(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


class _Loaded:
    """A rank's microbatches as lists of items, loaded as they are reached."""

    def __init__(self, items: Items, microbatches: list[Microbatch]) -> None:
        self._items, self._microbatches = items, microbatches

    def __iter__(self) -> Iterator[list[Any]]:
        return map(self._items.microbatch, self._microbatches)


class Minibatches(Place):
    """See `minibatches`. A `for` runs to the end of the epoch; the next starts the next epoch."""

    def __init__(
        self,
        dataset: Dataset,
        dealing: Dealing,
        order: Order,
        length: Length | Sequence[int],
        weight: Weight | None,
        cut: Cut,
    ) -> None:
        if not callable(length) and len(length) != len(dataset):
            raise ValueError(f"there are {len(length)} lengths for {len(dataset)} samples")
        super().__init__(order.facts, order.steps)
        self.world_size = dealing.world_size
        self.rank = dealing.rank
        self.samples_per_minibatch = dealing.samples_per_minibatch
        self._dataset, self._dealing, self._order = dataset, dealing, order
        self._length, self._weight, self._cut = length, weight, cut

    def __len__(self) -> int:
        """Minibatches in an epoch; the last may have fewer samples unless drop_last."""
        return self._order.steps

    def __iter__(self) -> Iterator[Minibatch]:
        epoch = self.epoch
        while self.epoch == epoch:
            minibatch = self._make(epoch, self.step)
            self.lost.add_oversize(minibatch.plan, self._dealing.oversize)
            last = self.step + 1 == len(self)
            if last and (tail := self._order.tail(epoch)):
                self.lost.add_tail(len(tail), sum(self._items(tail).lengths))
            self._advance(last)
            yield minibatch

    def endless(self) -> Iterator[Minibatch]:
        """Epoch after epoch, without end."""
        while True:
            yield from self

    def _items(self, indices: list[int]) -> Items:
        return Items(
            lambda position: self._dataset[indices[position]],
            lengths_by(self._length, indices),
            self._cut,
        )

    def _make(self, epoch: int, step: int) -> Minibatch:
        indices = self._order.indices(epoch, step)
        items = self._items(indices)
        plan = self._dealing.plan(items.lengths, indices)
        return Minibatch(
            plan,
            self.rank,
            epoch,
            step,
            indices,
            items.weight(plan, self._weight),
            _Loaded(items, plan.ranks[self.rank]),
            functools.partial(items.stand_in, plan),
        )


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
    length: Length | Sequence[int] = token_count,
    weight: Callable[[Any], float] | None = None,
    oversize: str = "error",
    cut: Cut | None = None,
    alignment: int = 1,
    groups: Sequence[int] | None = None,
    shuffle: bool = True,
    drop_last: bool = False,
    **options: Any,
) -> Minibatches:
    """This rank's part of every minibatch, balanced over `world_size` ranks.

    Every rank plans the whole minibatch for itself and gets the same plan; `Minibatch.plan_digest`
    proves it. The result can be resumed: `state_dict()` is a few integers.

    max_tokens: no microbatch holds more, ever.
    strategy: of `plan`; "lb-mini" (ranks may have different counts: on-demand), "lb-micro" (equal
        counts: lockstep) or "none" (round robin, one sample a microbatch) among them.
    samples_per_minibatch: over all ranks together; 8 a rank unless given.
    rank: of this process in the world; torch.distributed's unless given.
    seed: of the order of samples, which depends on it and the epoch alone, on every platform.
    cost: what a sample costs by its length; the 1.5B preset unless given.
    length: tokens of an item, or the lengths of all samples, which saves loading other ranks'
        items; len(item) unless given, which dict and tuple items must not leave to it.
    weight: target tokens that count in an item's loss, for `global_tokens`; its length unless
        given. Called on every rank for every item of the minibatch.
    oversize: what to do with a sample longer than max_tokens: "error", "truncate", "drop" or
        "split"; the plan says how many tokens that lost, and `lost` how many so far.
    cut: (item, begin, end) -> item, for "truncate" and "split"; a slice unless given.
    alignment: lengths count towards max_tokens rounded up to a multiple of this.
    groups: an id for each sample of the dataset; samples of one id stay on one rank where they meet
        in a minibatch, as they do with shuffle=False and groups side by side.
    shuffle: False keeps the dataset's order.
    drop_last: leaves out an epoch's last minibatch where it has fewer samples; `lost` counts them.
    options: further ones of `plan`.
    """
    dealing = Dealing.of(
        world_size,
        max_tokens,
        strategy,
        samples_per_minibatch,
        rank,
        cost=cost,
        oversize=oversize,
        alignment=alignment,
        groups=groups,
        options=options,
    )
    order = dealing.order(len(dataset), seed, shuffle, drop_last)
    return Minibatches(dataset, dealing, order, length, weight, cut or slice_of)
