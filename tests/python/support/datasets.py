"""Datasets of token lists, map-style and iterable, and what a loop sees of minibatches."""

import itertools
import random
from collections.abc import Iterable, Iterator

from headrace.data import Minibatch

Seen = tuple[int, list[list[int]]]  # a plan's digest, and the first tokens of each microbatch


def tokens_of(count: int, longest: int = 50, seed: int = 0) -> list[list[int]]:
    """Samples as lists of tokens; token j of sample i is 1000 i + j."""
    lengths = random.Random(seed)
    return [[1000 * i + j for j in range(lengths.randint(1, longest))] for i in range(count)]


def seen(minibatches: Iterable[Minibatch], most: int | None = None) -> list[Seen]:
    """What was trained, for comparison. Batches are lists of token lists."""
    found = []
    for minibatch in itertools.islice(minibatches, most):
        firsts = [[sample[0] // 1000 for sample in batch] for batch in minibatch]
        assert firsts == minibatch.indices
        found.append((minibatch.plan_digest, firsts))
    return found


class Stream:
    """Samples in order, epoch after epoch; knows its epoch if told."""

    def __init__(self, samples: list[list[int]]) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.samples)


class StatefulStream(Stream):
    """Goes on where its state says, and counts what it read."""

    def __init__(self, samples: list[list[int]]) -> None:
        super().__init__(samples)
        self.next = self.first = self.read = 0

    def __iter__(self) -> Iterator[list[int]]:
        self.next, self.first = self.first, 0
        while self.next < len(self.samples):
            self.next += 1
            self.read += 1
            yield self.samples[self.next - 1]

    def state_dict(self) -> dict[str, int]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.first = state["next"]
