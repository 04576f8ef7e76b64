"""The items of one minibatch: their tokens counted, loaded once, cut where the plan says so."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace._engine import Microbatch, Piece, Plan
from headrace.data.minibatch import pieces_of, shortest

Length = Callable[[Any], int]
Cut = Callable[[Any, int, int], Any]
Weight = Callable[[Any], float]


def token_count(item: Any) -> int:
    """len(item), where that can be a number of tokens."""
    if isinstance(item, Mapping | tuple):
        raise TypeError(
            f"the len() of a {type(item).__name__} counts its fields, not its tokens; give "
            "minibatches(length=...) a function, such as lambda item: len(item['input_ids']), or "
            "the list of all lengths"
        )
    return len(item)


def slice_of(item: Any, begin: int, end: int) -> Any:
    try:
        return item[begin:end]
    except (TypeError, KeyError) as error:
        raise TypeError(
            f"a {type(item).__name__} cannot be cut by a slice; give minibatches(cut=...) a "
            "function (item, begin, end) -> item"
        ) from error


class Items:
    """get: the item at a position of the minibatch; called once for each that is needed."""

    def __init__(
        self, get: Callable[[int], Any], lengths: Callable[["Items"], list[int]], cut: Cut
    ) -> None:
        self._get = get
        self._cut = cut
        self._held: dict[int, Any] = {}
        self.lengths = lengths(self)

    def item(self, position: int) -> Any:
        if position not in self._held:
            self._held[position] = self._get(position)
        return self._held[position]

    def load(self, piece: Piece) -> Any:
        item = self.item(piece.sample)
        if piece.tokens == self.lengths[piece.sample]:
            return item
        return self._cut(item, piece.begin, piece.begin + piece.tokens)

    def microbatch(self, micro: Microbatch) -> list[Any]:
        return [self.load(piece) for piece in micro.pieces]

    def stand_in(self, plan: Plan) -> Any:
        return self.load(shortest(plan))

    def weight(self, plan: Plan, weight: Weight | None) -> float:
        """Of all ranks' pieces, added in plan order, so that every rank gets the same number."""
        if weight is None:
            return plan.tokens
        return sum(weight(self.load(piece)) for piece in pieces_of(plan))


def lengths_by(
    length: Length | Sequence[int], indices: Sequence[int]
) -> Callable[[Items], list[int]]:
    """The lengths of a minibatch, by a function of items or from the list of all lengths."""
    if callable(length):
        return lambda items: [operator.index(length(items.item(i))) for i in range(len(indices))]
    return lambda items: [operator.index(length[index]) for index in indices]
