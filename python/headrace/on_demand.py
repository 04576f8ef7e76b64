"""On-demand traffic of one attached model: gathers and pushes that wait for no rank's compute."""

from collections import deque

import torch

from headrace._engine import GradientSource, Session
from headrace.fsdp2.gradients import dense
from headrace.fsdp2.sharded_model import ShardedModel, dtypes


class OnDemand:
    def __init__(self, model: ShardedModel, session: Session) -> None:
        self._model = model
        self._session = session
        # What pushes under way still read, oldest first, by ticket.
        self._held: deque[tuple[int, list[tuple[int, torch.Tensor]]]] = deque()

    def start_gather(self, group: int, landings: list[int]) -> None:
        self._release()
        self._session.start_gather(group, landings)

    def push(self, group: int, gradients: list[tuple[int, torch.Tensor]]) -> None:
        """Takes the gradients out of the list, and lets go of them some time after they have been
        added."""
        held = [(i, dense(self._model, group, i, gradient)) for i, gradient in gradients]
        gradients.clear()
        sources = [GradientSource(i, g.data_ptr(), dtypes[g.dtype]) for i, g in held]
        self._held.append((self._session.push(group, sources), held))
        del held
        self._release()

    def _release(self) -> None:
        pushed = self._session.pushed()
        while self._held and self._held[0][0] <= pushed:
            self._held.popleft()

    def end(self) -> None:
        """The session reads no gradient any more."""
        self._held.clear()
