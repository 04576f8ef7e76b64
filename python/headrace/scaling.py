"""How a minibatch's gradients are scaled, and what its loss comes to.

Three rules, one a bracket: FSDP2's own 1/N where the loop calls `loss.backward()`; 1/count before
autograd where `minibatch(tokens=...)` gave the global count; 1/sum(n) at settle where each
`backward(..., tokens=n)` gave its own. Samples may stand in for tokens.
"""

import math
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

from headrace.errors import OperationError


class Rule(IntFlag):
    """Which rules were used in a bracket; the engine ORs them over all ranks."""

    none = 0
    plain = 1
    counted_tokens = 2
    counted_samples = 4
    given_tokens = 8
    given_samples = 16


_words = {
    Rule.plain: "loss.backward()",
    Rule.counted_tokens: "engine.backward(loss_sum, tokens=...)",
    Rule.counted_samples: "engine.backward(loss_sum, samples=...)",
    Rule.given_tokens: "engine.minibatch(tokens=...)",
    Rule.given_samples: "engine.minibatch(samples=...)",
}
_token_rules = Rule.counted_tokens | Rule.given_tokens


def count(name: str, value: Any) -> float:
    """A count given by the user as a number: finite and not negative."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise OperationError(f"{name}={value!r}: a count must be one finite number") from None
    if not math.isfinite(number) or number < 0:
        raise OperationError(f"{name}={value}: a count must be a finite number, 0 or more")
    return number


@dataclass(frozen=True)
class Outcome:
    """What the minibatch came to, the same on every rank."""

    scale: float  # of the summed gradients
    loss: float | None  # mean over all tokens or samples; None under FSDP2's own rule
    tokens: float | None
    samples: float | None
    flagged: bool  # no valid token or sample anywhere: gradients are zero


class LossAccount:
    """One rank's share of one minibatch: the rules used, the loss summed, the tokens or samples
    counted."""

    def __init__(self, tokens: Any = None, samples: Any = None) -> None:
        if tokens is not None and samples is not None:
            raise OperationError("minibatch(tokens=..., samples=...): give one of the two")
        self.rules = Rule.none
        self.given: float | None = None
        self.loss_sum = 0.0
        self.weight = 0.0
        self.microbatches = 0
        if tokens is not None:
            self.given = count("tokens", tokens)
            self.rules = Rule.given_tokens
        elif samples is not None:
            self.given = count("samples", samples)
            self.rules = Rule.given_samples

    @property
    def digest_weight(self) -> float:
        """What all ranks must agree on at entry; whether all mean tokens shows at settle."""
        return self.given or 0.0

    def note_plain(self) -> None:
        """FSDP2 ran a backward that engine.backward did not start."""
        self._use(Rule.plain)

    def factor(self, tokens: Any, samples: Any) -> float:
        """What engine.backward multiplies its loss sum by."""
        if tokens is not None and samples is not None:
            raise OperationError("backward(tokens=..., samples=...): give one of the two")
        if tokens is None and samples is None:
            if self.given is None:
                raise OperationError(
                    "engine.backward needs a count to divide by: give the global one to "
                    "engine.minibatch(tokens=...) or this microbatch's to "
                    "engine.backward(loss_sum, tokens=...)"
                )
            return 1.0 / self.given if self.given > 0 else 0.0
        if tokens is not None:
            self._use(Rule.counted_tokens)
            self.weight += count("tokens", tokens)
        else:
            self._use(Rule.counted_samples)
            self.weight += count("samples", samples)
        return 1.0

    def add(self, loss_sum: float) -> None:
        self.loss_sum += loss_sum
        self.microbatches += 1

    def settle(self, rules: Rule, loss_sum: float, weight: float, world_size: int) -> Outcome:
        """From the sums over all ranks, every rank draws the same conclusion."""
        _check_one(rules)
        if rules & Rule.plain:
            return Outcome(1.0 / world_size, None, None, None, flagged=False)
        if rules == Rule.none:  # no rank ran a backward
            return Outcome(1.0, None, None, None, flagged=False)
        given = rules & (Rule.given_tokens | Rule.given_samples)
        total = self.given if given and self.given is not None else weight
        tokens = total if rules & _token_rules else None
        samples = None if rules & _token_rules else total
        if total == 0:
            return Outcome(0.0, 0.0, tokens, samples, flagged=True)
        return Outcome(
            1.0 if given else 1.0 / total, loss_sum / total, tokens, samples, flagged=False
        )

    def _use(self, rule: Rule) -> None:
        _check_one(self.rules | rule)
        self.rules |= rule


def _check_one(rules: Rule) -> None:
    used = [words for rule, words in _words.items() if rules & rule]
    if len(used) > 1:
        raise OperationError(
            f"{' and '.join(used)} in one minibatch: they scale gradients differently; "
            "use one of them on every rank"
        )
