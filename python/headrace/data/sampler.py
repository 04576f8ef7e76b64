"""A map-style dataset through a torch DataLoader: its workers load, this process plans."""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace._engine import CostModel
from headrace.data.dealing import Dealing
from headrace.data.minibatch import Minibatch, pieces_of
from headrace.data.place import Place


class MinibatchSampler(Place):
    """A DataLoader's `batch_sampler`: gives the dataset indices of one microbatch of this rank
    after another. Not of a whole minibatch: a microbatch is what collators, workers and models
    know. `minibatches` puts those of a minibatch together again:

        sampler = MinibatchSampler(lengths, world_size, max_tokens)
        loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=PackedCollator(), ...)
        for minibatch in sampler.minibatches(loader):
            with engine.minibatch(tokens=minibatch.global_tokens, plan=minibatch):
                for batch in minibatch:
                    engine.backward(loss_sum(model, batch))

    A filler (strategy "lb-micro" with too few samples) is an empty list; PackedCollator makes one
    token without a label of it.

    The state is that of the minibatches which `minibatches` gave out, however far ahead the
    loader's workers are.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        world_size: int,
        max_tokens: int,
        strategy: str = "lb-mini",
        *,
        weights: Sequence[float] | None = None,
        samples_per_minibatch: int | None = None,
        rank: int | None = None,
        seed: int = 0,
        cost: CostModel | None = None,
        oversize: str = "error",
        alignment: int = 1,
        groups: Sequence[int] | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        **options: Any,
    ) -> None:
        """lengths: tokens of every sample of the dataset, in its order.
        weights: target tokens of every sample, for `global_tokens`; its lengths unless given.
        oversize: "error", "drop", or "truncate" with a collator that cuts at max_tokens, such as
            PackedCollator(max_tokens=...); weights then count what is left after the cut.
        The rest as of `minibatches`.
        """
        if oversize == "split":
            raise ValueError(
                "oversize='split': a loader fetches whole samples; use headrace.data.minibatches, "
                "which cuts them, or split them before"
            )
        if weights is not None and len(weights) != len(lengths):
            raise ValueError(f"there are {len(weights)} weights for {len(lengths)} samples")
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
        order = dealing.order(len(lengths), seed, shuffle, drop_last)
        super().__init__(order.facts, order.steps)
        self.world_size = dealing.world_size
        self.rank = dealing.rank
        self.steps = order.steps  # minibatches in an epoch
        self._dealing, self._order = dealing, order
        self._lengths, self._weights = lengths, weights
        self._drawn: _Draw | None = None  # the newest

    def __iter__(self) -> "_Draw":
        """Draws this rank's microbatches from the place of `state_dict` to the epoch's end."""
        self._drawn = _Draw(self)
        return self._drawn

    def minibatches(self, loader: Iterable[Any]) -> Iterator[Minibatch]:
        """Minibatches to the end of the epoch, their microbatches as `loader` makes them, each
        once; the next call starts the next epoch. `loader` draws its batches from this sampler, in
        order."""
        if not getattr(loader, "in_order", True):
            raise ValueError("the loader has in_order=False, so its batches belong to no minibatch")
        before = self._drawn
        batches = iter(loader)
        if self._drawn is before or self._drawn is None:
            raise ValueError(
                "the loader does not draw from this sampler: give it batch_sampler=sampler"
            )
        self.epoch, self.step = self._drawn.first_whole()
        epoch = self.epoch
        while self.epoch == epoch and self.step < self.steps:
            draw = _Taken(batches, 0)
            minibatch = self.make(epoch, self.step, draw)
            draw.left = len(minibatch)
            self.lost.add_oversize(minibatch.plan, self._dealing.oversize)
            last = self.step + 1 == self.steps
            if last and (tail := self._order.tail(epoch)):
                self.lost.add_tail(len(tail), sum(self._lengths_of(tail)))
            self._advance(last)
            yield minibatch
            draw.take_rest()
        if self.epoch == epoch:  # the place was behind its last minibatch
            self.set_epoch(epoch + 1)

    def endless(self, loader: Iterable[Any]) -> Iterator[Minibatch]:
        """Epoch after epoch, without end."""
        while True:
            yield from self.minibatches(loader)

    def make(self, epoch: int, step: int, batches: Iterable[Any] = ()) -> Minibatch:
        """The minibatch at any place; of `batches`, its microbatches' values."""
        indices = self._order.indices(epoch, step)
        plan = self._dealing.plan(self._lengths_of(indices), indices)
        tokens: float = plan.tokens
        if self._weights is not None:
            tokens = sum(self._weights[indices[piece.sample]] for piece in pieces_of(plan))
        return Minibatch(plan, self.rank, epoch, step, indices, tokens, batches, _no_stand_in)

    def _lengths_of(self, indices: Iterable[int]) -> list[int]:
        return [operator.index(self._lengths[index]) for index in indices]


def _no_stand_in() -> Any:
    raise ValueError(
        "a loader's minibatch has no stand_in: its collator makes a batch of a filler's empty "
        "list, as PackedCollator does"
    )


class _Draw(Iterator[list[int]]):
    """Indices of microbatches as a loader draws them, ahead of training. Its state is of use to
    loaders that keep one for each batch they give, such as torchdata's."""

    def __init__(self, sampler: MinibatchSampler) -> None:
        self._sampler = sampler
        self._go_to(sampler.epoch, sampler.step, 0)

    def _go_to(self, epoch: int, step: int, taken: int) -> None:
        self._first = self._next = epoch, step, taken
        self._indices: list[list[int]] | None = None

    def __next__(self) -> list[int]:
        epoch, step, taken = self._next
        while step < self._sampler.steps:
            if self._indices is None:
                self._indices = self._sampler.make(epoch, step).indices
            if taken < len(self._indices):
                self._next = epoch, step, taken + 1
                return self._indices[taken]
            step, taken, self._indices = step + 1, 0, None
        self._next = epoch, step, 0
        raise StopIteration

    def state_dict(self) -> dict[str, int]:
        return dict(zip(("epoch", "step", "taken"), self._next, strict=True))

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._go_to(state["epoch"], state["step"], state["taken"])

    def first_whole(self) -> tuple[int, int]:
        """Epoch and step of the first minibatch that is drawn."""
        epoch, step, taken = self._first
        if taken == 0:
            return epoch, step
        if taken < len(self._sampler.make(epoch, step)):
            raise ValueError(
                f"the loader's state lies {taken} microbatches into step {step}: take it at the "
                "end of a minibatch, or resume from the sampler's own"
            )
        step += 1
        if step < self._sampler.steps and len(self._sampler.make(epoch, step)) == 0:
            raise ValueError(
                f"step {step} has no microbatch for rank {self._sampler.rank}, so the loader's "
                "state cannot tell whether it is done: resume from the sampler's own"
            )
        return epoch, step


class _Taken:
    """The next `left` batches of a loader, each once."""

    def __init__(self, batches: Iterator[Any], left: int) -> None:
        self._batches, self.left = batches, left
        self._begun = False

    def __iter__(self) -> Iterator[Any]:
        if self._begun and self.left == 0:
            raise RuntimeError(
                "a loader's batches come once, and those of this minibatch have been taken, by a "
                "loop over it or by asking for the next minibatch"
            )
        return self._rest()

    def take_rest(self) -> None:
        for _ in self._rest():
            pass

    def _rest(self) -> Iterator[Any]:
        while self.left > 0:
            self._begun = True
            try:
                batch = next(self._batches)
            except StopIteration:
                raise RuntimeError(
                    f"the loader ended {self.left} microbatches before the minibatch did"
                ) from None
            self.left -= 1
            yield batch
