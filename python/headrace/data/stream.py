"""An iterable dataset: samples as they come, a minibatch planned whenever there are enough."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker

from headrace._engine import CostModel, Plan
from headrace.data.dealing import Dealing
from headrace.data.items import Cut, Items, Length, Weight, slice_of, token_count
from headrace.data.minibatch import Minibatch
from headrace.data.place import Lost, Place


class MinibatchStream(IterableDataset, Place):
    """This rank's part of a stream of samples, a whole minibatch at a time.

    Every rank reads the same stream in the same order, takes `samples_per_minibatch` of it, plans
    them and keeps its own: ranks cannot plan shards of others without asking for their lengths.
    With a DataLoader (batch_size=None) its workers all read the stream and take minibatches in
    turn, so they share the making of batches and not the reading; the dataset does not see that
    there are workers, so one that would deal its shards to them gives each the whole.

        stream = MinibatchStream(dataset, world_size, max_tokens, collate=PackedCollator())
        loader = DataLoader(stream, batch_size=None, num_workers=2, persistent_workers=True)
        for minibatch in stream.minibatches(loader): ...

    The order is the stream's; a dataset with `set_epoch` is told each epoch. Resuming goes by the
    dataset's own `state_dict` and `load_state_dict` where it has both, else by reading and skipping
    what was trained.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        world_size: int,
        max_tokens: int,
        strategy: str = "lb-mini",
        *,
        samples_per_minibatch: int | None = None,
        rank: int | None = None,
        cost: CostModel | None = None,
        length: Length = token_count,
        weight: Weight | None = None,
        oversize: str = "error",
        cut: Cut | None = None,
        alignment: int = 1,
        drop_last: bool = False,
        collate: Callable[[list[Any]], Any] = list,
        **options: Any,
    ) -> None:
        """collate: makes a batch of a microbatch's items, an empty list for a filler among them.
        The rest as of `minibatches`.
        """
        self._dealing = Dealing.of(
            world_size,
            max_tokens,
            strategy,
            samples_per_minibatch,
            rank,
            cost=cost,
            oversize=oversize,
            alignment=alignment,
            options=options,
        )
        self.world_size = self._dealing.world_size
        self.rank = self._dealing.rank
        self.samples_per_minibatch = self._dealing.samples_per_minibatch
        facts = {
            "samples_per_minibatch": self.samples_per_minibatch,
            "drop_last": int(drop_last),
        }
        Place.__init__(self, facts, None)
        self._dataset, self._length, self._weight = dataset, length, weight
        self._cut, self._collate, self._drop_last = cut or slice_of, collate, drop_last
        self._keeps_state = hasattr(dataset, "state_dict") and hasattr(dataset, "load_state_dict")
        self._dataset_state: Any = None  # before the next minibatch
        self._loaded: tuple[int, int, Any] | None = None  # the dataset's state at epoch and step
        self._start = torch.zeros(2, dtype=torch.int64).share_memory_()  # workers that live on too

    def minibatches(self, loader: Iterable["_Part"] | None = None) -> Iterator[Minibatch]:
        """Minibatches to the end of the epoch; the next call starts the next epoch. `loader` draws
        from this stream; without one they are made in this process."""
        if getattr(loader, "batch_size", None) is not None:
            raise ValueError(
                "the loader makes batches of minibatches: DataLoader(stream, batch_size=None)"
            )
        self._start.copy_(torch.tensor([self.epoch, self.step]))
        epoch, ended = self.epoch, False
        for part in self if loader is None else loader:
            if not isinstance(part, _Part) or (part.epoch, part.step) != (epoch, self.step):
                raise ValueError(
                    "the loader does not draw from this stream in order: DataLoader(stream, "
                    "batch_size=None)"
                )
            minibatch = part.minibatch(self.rank)
            self.lost.add_oversize(part.plan, self._dealing.oversize)
            ended = part.tail is not None
            if part.tail is not None:
                self.lost.add_tail(part.tail.tail_samples, part.tail.tokens)
            self._dataset_state = None if ended else part.dataset_state
            self._advance(ended)
            yield minibatch
        if not ended:
            raise RuntimeError(f"the stream ended before step {self.step} of epoch {epoch}")

    def endless(self, loader: Iterable["_Part"] | None = None) -> Iterator[Minibatch]:
        """Epoch after epoch, without end."""
        while True:
            yield from self.minibatches(loader)

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._dataset_state = None
        super().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "dataset": self._dataset_state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._dataset_state = state["dataset"]
        self._loaded = self.epoch, self.step, state["dataset"]

    def __iter__(self) -> Iterator["_Part"]:
        """What workers send; `minibatches` makes minibatches of it."""
        epoch, first = self._start.tolist()
        info = get_worker_info()
        own, workers = (info.id, info.num_workers) if info else (0, 1)
        samples = self._samples(epoch, first)
        chunk = list(itertools.islice(samples, self.samples_per_minibatch))
        if not chunk and first == 0:
            raise ValueError("the stream is empty: there is nothing to train on")
        if self._drop_last and first == 0 and len(chunk) < self.samples_per_minibatch:
            raise ValueError(
                f"drop_last leaves nothing: the stream has {len(chunk)} samples, fewer than the "
                f"{self.samples_per_minibatch} of a minibatch"
            )
        for step in itertools.count(first):
            if len(chunk) < self.samples_per_minibatch and (self._drop_last or not chunk):
                return
            state = self._dataset.state_dict() if self._keeps_state else None
            following = list(itertools.islice(samples, self.samples_per_minibatch))
            short = len(following) < self.samples_per_minibatch
            ends = not following or (short and self._drop_last)
            if (step - first) % workers == own:
                tail = self._tail(following) if ends else None
                yield self._part(epoch, step, chunk, state, tail)
            chunk = [] if ends else following

    def _samples(self, epoch: int, step: int) -> Iterator[Any]:
        """From the beginning of a minibatch on."""
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)
        loaded = self._loaded
        skipped = step * self.samples_per_minibatch
        if step and loaded and loaded[:2] == (epoch, step) and loaded[2] and self._keeps_state:
            self._dataset.load_state_dict(loaded[2])
            skipped = 0
        return itertools.islice(_without_workers(self._dataset), skipped, None)

    def _tail(self, samples: list[Any]) -> Lost:
        return Lost(
            tail_samples=len(samples),
            tokens=sum(operator.index(self._length(sample)) for sample in samples),
        )

    def _part(
        self, epoch: int, step: int, samples: list[Any], state: Any, tail: Lost | None
    ) -> "_Part":
        begin = step * self.samples_per_minibatch
        positions = list(range(begin, begin + len(samples)))
        items = Items(
            samples.__getitem__,
            lambda _: [operator.index(self._length(sample)) for sample in samples],
            self._cut,
        )
        plan = self._dealing.plan(items.lengths, positions)
        micros = plan.ranks[self.rank]
        stand_in = None
        if any(micro.filler for micro in micros):
            stand_in = self._collate([items.stand_in(plan)])
        return _Part(
            plan,
            epoch,
            step,
            positions,
            items.weight(plan, self._weight),
            [self._collate(items.microbatch(micro)) for micro in micros],
            stand_in,
            state,
            tail,
        )


class _Part:
    """One minibatch as it travels from a worker; `tail` where it is its epoch's last."""

    def __init__(
        self,
        plan: Plan,
        epoch: int,
        step: int,
        positions: list[int],
        global_tokens: float,
        batches: list[Any],
        stand_in: Any,
        dataset_state: Any,
        tail: Lost | None,
    ) -> None:
        self.plan, self.epoch, self.step = plan, epoch, step
        self.positions, self.global_tokens = positions, global_tokens
        self.batches, self.stand_in = batches, stand_in
        self.dataset_state, self.tail = dataset_state, tail

    def minibatch(self, rank: int) -> Minibatch:
        return Minibatch(
            self.plan,
            rank,
            self.epoch,
            self.step,
            self.positions,
            self.global_tokens,
            self.batches,
            functools.partial(getattr, self, "stand_in"),
        )


def _without_workers(dataset: Iterable[Any]) -> Iterator[Any]:
    """As if this process were no loader's worker, for as long as the dataset reads."""
    iterator: Iterator[Any] | None = None
    while True:
        seen, worker._worker_info = worker._worker_info, None
        try:
            if iterator is None:
                iterator = iter(dataset)
            sample = next(iterator)
        except StopIteration:
            return
        finally:
            worker._worker_info = seen
        yield sample
