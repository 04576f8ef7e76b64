"""Where in the data a run is, what it left out so far, and how both are saved."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from headrace._engine import Plan


@dataclass
class Lost:
    """What was not trained since the run began, over all ranks and resumed runs."""

    tail_samples: int = 0  # of epochs' last minibatches, with drop_last
    oversize_samples: int = 0  # dropped whole, with oversize="drop"
    tokens: int = 0  # of both, and those cut off with oversize="truncate"

    def add_oversize(self, plan: Plan, oversize: str) -> None:
        if oversize == "drop":
            self.oversize_samples += len(plan.oversize)
        self.tokens += plan.tokens_lost

    def add_tail(self, samples: int, tokens: int) -> None:
        self.tail_samples += samples
        self.tokens += tokens


class Place:
    """The minibatch that comes next: `step` within `epoch`, with what was `lost` on the way.

    facts: what a saved state must have in common with the run that goes on from it.
    steps: minibatches in an epoch, where they are known.
    """

    def __init__(self, facts: Mapping[str, int], steps: int | None) -> None:
        self.epoch = 0
        self.step = 0
        self.lost = Lost()
        self._facts = dict(facts)
        self._steps = steps

    def set_epoch(self, epoch: int) -> None:
        """To the beginning of `epoch`; stays where it is if it is there already, so that a resumed
        run may call it too."""
        if epoch < 0:
            raise ValueError(f"epochs count from 0: {epoch}")
        if epoch != self.epoch:
            self.epoch, self.step = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Where to go on, a few integers. Taken while a minibatch is being trained, it names the
        one after."""
        return {"epoch": self.epoch, "step": self.step, **self._facts, **asdict(self.lost)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken, with the same plans; the world size may have changed."""
        for name in self.state_dict():
            if name not in state:
                raise ValueError(f"the saved state has no {name!r}")
        for name, here in self._facts.items():
            if state[name] != here:
                raise ValueError(
                    f"the saved state has {name} {state[name]}, but this run has {here}: it would "
                    "train on other samples than the run that it resumes"
                )
        epoch, step = state["epoch"], state["step"]
        if epoch < 0 or step < 0 or (self._steps is not None and step >= self._steps):
            raise ValueError(f"the saved state has no such place: epoch {epoch}, step {step}")
        self.epoch, self.step = epoch, step
        self.lost = Lost(*(state[name] for name in asdict(self.lost)))

    def _advance(self, ends_epoch: bool) -> None:
        self.step += 1
        if ends_epoch:
            self.epoch, self.step = self.epoch + 1, 0
