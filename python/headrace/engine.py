"""One attached model: its brackets, its backward, its reports."""

import operator
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any, NoReturn

import torch

from headrace._engine import BracketKind, GradientSource, Session
from headrace.errors import OperationError, SessionError
from headrace.fsdp2.gradients import write_gradients
from headrace.fsdp2.sharded_model import ShardedModel, dtypes
from headrace.report import Report, Traffic, timeline
from headrace.scaling import LossAccount, Outcome, Rule

_exit_priority = 100  # before multiprocessing joins children and tears down its own
_no_outcome = Outcome(scale=1.0, loss=None, tokens=None, samples=None, flagged=False)


class Engine:
    """Made by headrace.attach; brackets are entered in the same order on every rank.

    One caller at a time. After a failure (here or on a peer) every call but `detach` raises.
    """

    def __init__(
        self, model: ShardedModel, session: Session, hooks: ModuleType, trace_events: int
    ) -> None:
        self._model = model
        self._session = session
        self._hooks = hooks
        self._kind: BracketKind | None = None  # of the open bracket
        self._account = LossAccount()
        self._own_backward = False
        self._failure = ""
        self._attached = True
        self._report: Report | None = None
        self._brackets: deque[dict[str, Any]] = deque(maxlen=trace_events)
        model.gather_whole_shards()
        hooks.attach(model.groups, self)
        # Runs at the end of this process, of a multiprocessing child too, but not of a fork of it.
        self._at_exit = Finalize(
            None, _leave_at_exit, (weakref.ref(self),), exitpriority=_exit_priority
        )

    # -- brackets

    @contextmanager
    def minibatch(
        self, tokens: float | None = None, samples: float | None = None, plan: int = 0
    ) -> Iterator[None]:
        """One minibatch of any number of microbatches, zero included; settles on leaving.

        `tokens` (or `samples`) is the minibatch's global count, for the mean that engine.backward
        makes. `plan` is any number that must agree on every rank, such as a hash of the balancer's
        plan. On leaving, every parameter that any rank touched has its gradient in `.grad`, added
        to what was there; others keep theirs. Optimizer steps belong after the bracket.
        """
        account = LossAccount(tokens, samples)
        with self._bracket(BracketKind.minibatch, account, plan):
            yield

    @contextmanager
    def evaluation(self, plan: int = 0) -> Iterator[None]:
        """A bracket for forwards alone, under no_grad or not; ranks may run different numbers of
        batches, none included. Nothing settles."""
        with self._bracket(BracketKind.evaluation, LossAccount(), plan):
            yield

    def backward(
        self,
        loss_sum: torch.Tensor,
        *,
        tokens: float | None = None,
        samples: float | None = None,
        **autograd: Any,
    ) -> None:
        """Backward of a microbatch's summed loss, so that the minibatch's gradient is that of the
        mean.

        Either the bracket was given the global count, or this call gives the microbatch's own
        `tokens` (valid ones) or `samples`; not both. `autograd` goes to Tensor.backward.
        """
        if self._kind is BracketKind.evaluation:
            self.backward_started()
        if self._kind is None:
            self._refuse(
                "engine.backward outside a minibatch: call it inside `with engine.minibatch()`"
            )
        if not isinstance(loss_sum, torch.Tensor):
            raise OperationError(
                f"loss_sum is {loss_sum!r}, not a tensor: give the summed loss of the microbatch; "
                "skip a microbatch without samples (strategy 'lb-micro' fills up with such)"
            )
        if loss_sum.numel() != 1:
            raise OperationError(
                f"loss_sum has shape {tuple(loss_sum.shape)}: give the sum over the microbatch, a "
                "scalar"
            )
        counted = tokens is not None or samples is not None
        factor = self._account.factor(tokens, samples)
        value = float(loss_sum.detach())
        self._own_backward = True
        try:
            (loss_sum if counted else loss_sum * factor).backward(**autograd)
        finally:
            self._own_backward = False
        self._account.add(value)

    def republish(self) -> None:
        """Publishes every shard at the next bracket, frozen ones too: call it after writing to a
        frozen parameter where autograd cannot see it (through `.data`, numpy or an address).
        """
        self._model.forget_published()

    # -- what it came to

    @property
    def report(self) -> Report | None:
        """Of the last bracket that this rank left in good order."""
        return self._report

    def timeline(self) -> list[dict[str, Any]]:
        """What happened since the last call, as JSON-able dictionaries in order of their beginning:
        the engine's publish, gather, push and settle, and the brackets around them."""
        names = [self._model.group_name(group) for group in self._model.groups]
        events = timeline(self._session.drain_trace(), names, self._session.rank)
        events.extend(self._brackets)
        self._brackets.clear()
        return sorted(events, key=lambda event: event["begin_ns"])

    # -- the end

    def detach(self) -> None:
        """Leaves the session and gives the model back to stock FSDP2. Idempotent. Peers that go on
        using the engine get an error that names this rank."""
        if not self._attached:
            return
        if self._kind is not None:
            raise OperationError("detach inside a bracket: leave it first")
        self._attached = False
        self._at_exit.cancel()
        self._hooks.detach(self._model.groups)
        self._model.reset()
        self._model.restore_post_forward_meshes()
        self._session.close()

    # -- called by FSDP2's replaced functions

    def require_open(self, group: int) -> None:
        if self._kind is None:
            name = self._model.group_name(self._model.groups[group])
            self._refuse(
                f"the parameters of group '{name}' are needed outside a bracket: run forward and "
                "backward inside `with engine.minibatch():` or `with engine.evaluation():`"
            )

    def backward_started(self) -> None:
        if self._kind is BracketKind.evaluation:
            raise OperationError(
                "backward inside engine.evaluation(): use engine.minibatch() to make gradients"
            )
        if self._kind is BracketKind.minibatch and not self._own_backward:
            self._account.note_plain()

    def gather(self, group: int, landings: list[int]) -> None:
        self.require_open(group)
        self._session.gather(group, landings)

    def push(self, group: int, gradients: list[tuple[int, torch.Tensor]]) -> None:
        self.require_open(group)
        self.backward_started()
        sources, held = [], []
        for index, gradient in gradients:
            if gradient.layout is not torch.strided or gradient.dtype not in dtypes:
                param = self._model.groups[group].fsdp_params[index]
                raise OperationError(
                    f"the gradient of parameter '{self._model.parameter_name(param)}' is "
                    f"{gradient.dtype} in layout {gradient.layout}: gradients must be dense, in "
                    "float32 or bfloat16 (for an embedding, sparse=False)"
                )
            # Some tensors are lazy: what lies at their address is not their value.
            if gradient._is_zerotensor():
                gradient = torch.zeros(gradient.shape, dtype=gradient.dtype)
            gradient = gradient.resolve_neg().contiguous()
            held.append(gradient)
            sources.append(GradientSource(index, gradient.data_ptr(), dtypes[gradient.dtype]))
        self._session.push(group, sources)

    # -- inside

    @contextmanager
    def _bracket(self, kind: BracketKind, account: LossAccount, plan: int) -> Iterator[None]:
        if not self._attached or self._failure:
            self._refuse(f"engine.{kind.name}()")
        if self._kind is not None:
            raise OperationError(
                f"engine.{kind.name}() inside engine.{self._kind.name}() of the same model: leave "
                "that bracket first"
            )
        try:
            digest = operator.index(plan) & (2**64 - 1)
        except TypeError:
            raise OperationError(f"plan={plan!r}: give a whole number") from None
        begin = time.monotonic_ns()
        before = Traffic.of(self._session.counters())
        self._model.reset()
        self._model.check()
        try:
            epoch = self._session.open(kind, self._model.sources(), account.digest_weight, digest)
            self._model.mark_published()
            self._kind, self._account = kind, account
            yield
            outcome = self._leave(kind)
        except BaseException as error:
            self._abort(error)
            raise
        finally:
            self._kind = None
        self._note(kind, epoch, outcome, begin, before)

    def _leave(self, kind: BracketKind) -> Outcome:
        leftover = self._model.leftover()
        if leftover:
            raise OperationError(
                f"parameter '{leftover}' still holds an unsharded gradient at the end of the "
                "bracket: call set_requires_gradient_sync(True) before the last backward of "
                "every minibatch"
            )
        changed = self._model.changed()
        if changed:
            raise OperationError(
                f"parameter '{changed}' changed inside the bracket, where peers may be reading "
                "it: move optimizer.step() and other changes after the bracket"
            )
        self._model.reset()
        if kind is BracketKind.evaluation:
            self._session.finish()
            return _no_outcome
        account = self._account
        self._session.finish(account.loss_sum, account.weight, int(account.rules))
        settled = self._session.settle()
        self._kind = None  # hooks and the optimizer may now change shards
        outcome = account.settle(
            Rule(settled.flags), settled.loss_sum, settled.weight, self._session.world_size
        )
        write_gradients(self._model, self._session, settled.touched, outcome.scale, outcome.flagged)
        return outcome

    def _abort(self, error: BaseException) -> None:
        """Tells the peers why this rank leaves, and leaves FSDP2 fit for another attach."""
        self._failure = f"{type(error).__name__}: {error}"
        self._session.fail(self._failure)  # no more than a repetition where a peer failed first
        self._model.reset()

    def _note(
        self, kind: BracketKind, epoch: int, outcome: Outcome, begin: int, before: Traffic
    ) -> None:
        end = time.monotonic_ns()
        counters = self._session.counters()
        traffic = Traffic.of(counters).since(before)
        self._report = Report.make(
            kind.name,
            epoch,
            outcome,
            self._account.microbatches,
            end - begin,
            traffic,
            counters.arena_bytes,
            self._session.accumulation.name,
        )
        self._brackets.append(
            {
                "rank": self._session.rank,
                "name": kind.name,
                "group": None,
                "epoch": epoch,
                "begin_ns": begin,
                "end_ns": end,
                "waited_ns": traffic.wait_ns,
                "bytes": traffic.gather_bytes + traffic.push_bytes + traffic.publish_bytes,
            }
        )

    def _refuse(self, what: str) -> NoReturn:
        if not self._attached:
            raise OperationError(f"this engine is detached: call headrace.attach again ({what})")
        if self._failure:
            raise SessionError(
                f"{what}: the session has failed ({self._failure}); detach and attach again on "
                "every rank"
            )
        raise OperationError(what)

    def _leave_process(self) -> None:
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        error = error or sys.exc_info()[1]
        if isinstance(error, SystemExit) and error.__context__ is not None:
            error = error.__context__  # a launcher turned it into an exit code
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            self._session.fail(f"{type(error).__name__}: {error}")
        elif self._kind is not None:
            self._session.fail("the process ended inside a bracket")
        else:
            self._session.close()


def _leave_at_exit(engine: "weakref.ref[Engine]") -> None:
    live = engine()
    if live is not None:
        live._leave_process()
