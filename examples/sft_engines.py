"""Ways to train one minibatch, with one interface: one process, stock FSDP2, and Headrace.

    with engine.minibatch(tokens, plan):      # all ranks' tokens; headrace.data's minibatch
        for micro in minibatch: engine.backward(loss_sum(model, micro))
    engine.loss                               # of the whole minibatch, a mean over its tokens

All leave the gradient of that mean, whatever the packing.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist
from sft_trace import Event

if TYPE_CHECKING:
    from headrace.data import Minibatch


class Engine(Protocol):
    lockstep: bool  # whether ranks must run as many microbatches as each other in this minibatch
    loss: float  # of the last minibatch, global

    def minibatch(self, tokens: int, plan: "Minibatch | int") -> AbstractContextManager[None]: ...
    def backward(self, loss_sum: torch.Tensor) -> None: ...
    def drain_events(self) -> list[Event]:
        """What this rank communicated since the last call, in order."""
        ...

    def close(self) -> None: ...


class SingleEngine:
    """One process, no sharding: the reference."""

    lockstep = False

    def __init__(self, model: torch.nn.Module) -> None:
        self.loss = 0.0
        self._scale = 0.0

    @contextmanager
    def minibatch(self, tokens: int, plan: "Minibatch | int") -> Iterator[None]:
        self._scale = 1.0 / max(tokens, 1)
        self.loss = 0.0
        yield

    def backward(self, loss_sum: torch.Tensor) -> None:
        (loss_sum * self._scale).backward()
        self.loss += loss_sum.item() * self._scale

    def drain_events(self) -> list[Event]:
        return []

    def close(self) -> None:
        pass


class StockEngine:
    """FSDP2's own collectives. Every rank must run the same number of microbatches.

    The reduce-scatter divides by the number of ranks; the loss is scaled by it to undo that.
    """

    lockstep = True

    def __init__(self, model: torch.nn.Module) -> None:
        self.loss = 0.0
        self._sum = torch.zeros(1, dtype=torch.float64)
        self._scale = 0.0
        self._events: list[Event] = []
        for module in model.modules():
            if hasattr(module, "set_custom_all_gather"):
                module.set_custom_all_gather(_TimedAllGather(self._events))
                module.set_custom_reduce_scatter(_TimedReduceScatter(self._events))

    @contextmanager
    def minibatch(self, tokens: int, plan: "Minibatch | int") -> Iterator[None]:
        mean = 1.0 / max(tokens, 1)
        self._scale = dist.get_world_size() * mean
        self._sum.zero_()
        yield
        with _timed(self._events, "loss", 0):
            dist.all_reduce(self._sum)
        self.loss = self._sum.item() * mean

    def backward(self, loss_sum: torch.Tensor) -> None:
        (loss_sum * self._scale).backward()
        self._sum += loss_sum.detach()

    def drain_events(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        return events

    def close(self) -> None:
        pass


_EVENT_FIELDS = ("name", "begin_ns", "end_ns", "bytes", "waited_ns", "group", "thread")
_BRACKETS = {"minibatch", "evaluation"}  # in the timeline they enclose the events that are counted


class HeadraceEngine:
    """Headrace. In mode "on-demand" ranks meet once a minibatch and their microbatch counts may
    differ; in "lockstep" they meet at every layer; "auto" goes by the plan."""

    def __init__(
        self, model: torch.nn.Module, mode: str = "on-demand", worker_threads: bool = False
    ) -> None:
        import headrace

        self._engine = headrace.attach(model, mode=mode, worker_threads=worker_threads)
        self.lockstep = False
        self.loss = 0.0

    @contextmanager
    def minibatch(self, tokens: int, plan: "Minibatch | int") -> Iterator[None]:
        with self._engine.minibatch(tokens=tokens, plan=plan):
            self.lockstep = self._engine.in_lockstep
            yield
        self.loss = self._engine.report.loss

    def backward(self, loss_sum: torch.Tensor) -> None:
        self._engine.backward(loss_sum)

    def drain_events(self) -> list[Event]:
        return [
            Event(*(event[name] for name in _EVENT_FIELDS), beside=event["thread"] != "caller")
            for event in self._engine.timeline()
            if event["name"] not in _BRACKETS
        ]

    def close(self) -> None:
        self._engine.detach()


ENGINES = {
    "single": SingleEngine,
    "stock": StockEngine,
    "headrace": HeadraceEngine,
    "headrace-lockstep": partial(HeadraceEngine, mode="lockstep"),
    "headrace-auto": partial(HeadraceEngine, mode="auto"),
}
LOCKSTEP_ENGINES = ("stock", "headrace-lockstep")  # in every minibatch


@contextmanager
def _timed(events: list[Event], name: str, moved: int) -> Iterator[None]:
    begin = time.monotonic_ns()
    yield
    events.append(Event(name, begin, time.monotonic_ns(), moved))


class _Timed:
    """What FSDP2 does by default, with its times kept. On the CPU its collectives block."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events

    def allocate(
        self, size: torch.Size, *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _TimedAllGather(_Timed):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        with _timed(self._events, "gather", output_tensor.nbytes):
            return dist.all_gather_single(
                output_tensor, input_tensor, group=group, async_op=async_op
            )


class _TimedReduceScatter(_Timed):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp,
        async_op: bool = False,
    ) -> dist.Work | None:
        with _timed(self._events, "push", input_tensor.nbytes):
            return dist.reduce_scatter_single(
                output_tensor, input_tensor, op=op, group=group, async_op=async_op
            )
