"""One attached model: its brackets, its backward, its reports."""

import os
import sys
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any, NoReturn

import torch

from headrace._engine import BracketKind, Plan, Session
from headrace.data import Minibatch
from headrace.errors import HeadraceError, OperationError, SessionError
from headrace.fsdp2.fallback import summing
from headrace.fsdp2.gradients import write_gradients
from headrace.fsdp2.reduction import Request
from headrace.fsdp2.sharded_model import ShardedModel
from headrace.lockstep import Lockstep
from headrace.mode import Mode, choose, digest_of, plan_of
from headrace.on_demand import OnDemand
from headrace.replicas import over_replicas
from headrace.report import Report, Traffic, timeline
from headrace.scaling import LossAccount, Outcome, Rule
from headrace.steps import refused_steps

_exit_priority = 100  # before multiprocessing joins children and tears down its own
_no_outcome = Outcome(scale=1.0, loss=None, tokens=None, samples=None, flagged=False)


class Engine:
    """Made by headrace.attach; brackets are entered in the same order on every rank.

    One caller at a time. After a failure (here or on a peer) every call but `detach` raises. Keep
    it for as long as the model trains: one that is dropped is detached.
    """

    def __init__(
        self,
        model: ShardedModel,
        session: Session,
        hooks: ModuleType,
        trace_events: int,
        mode: Mode = Mode.on_demand,
        residence: str = "in-place",
        worker_threads: bool = False,
    ) -> None:
        self._attached = False
        self.overlaps = worker_threads
        self._model = model
        self._session = session
        self._hooks = hooks
        self._mode = mode
        self._process = os.getpid()
        self._on_demand = OnDemand(model, session)
        self._lockstep: Lockstep | None = None
        self._in_step = mode is not Mode.on_demand  # of the open bracket; lockstep needs none
        self._kind: BracketKind | None = None  # of the open bracket
        self._account = LossAccount()
        self._own_backward = False
        self._failure = ""
        self._report: Report | None = None
        self._brackets: deque[dict[str, Any]] = deque(maxlen=trace_events)
        if mode is not Mode.on_demand:
            adopt = mode is Mode.lockstep
            self._lockstep = Lockstep(model, session, residence, adopt, worker_threads)
        model.gather_whole_shards()
        hooks.attach(model.groups, self)
        self._attached = True
        # Runs at the end of this process, of a multiprocessing child too, but not of a fork of it.
        self._at_exit = Finalize(
            None, _leave_at_exit, (weakref.ref(self),), exitpriority=_exit_priority
        )

    # -- brackets

    @contextmanager
    def minibatch(
        self,
        tokens: float | None = None,
        samples: float | None = None,
        plan: int | Plan | Minibatch = 0,
        mode: str | None = None,
    ) -> Iterator[None]:
        """One minibatch of any number of microbatches, zero included; settles on leaving.

        `tokens` (or `samples`) is the minibatch's global count, for the mean that engine.backward
        makes. `plan` is the balancer's minibatch or plan, or any number that must agree on every
        rank, such as a hash of it. On leaving, every parameter that any rank touched has its
        gradient in `.grad`, added to what was there; others keep theirs. Optimizer steps belong
        after the bracket.

        An engine of mode "auto" runs the bracket in lockstep where `plan` recommends it and gives
        every rank the same number of microbatches, else on demand; `mode` decides instead. In
        lockstep every rank runs the same number of microbatches, and engine.backward needs the
        global count given here.
        """
        account = LossAccount(tokens, samples)
        in_step = choose(self._mode, self._model.lockstep_only, plan, mode)
        with self._bracket(BracketKind.minibatch, account, plan, in_step):
            yield

    @contextmanager
    def evaluation(
        self, plan: int | Plan | Minibatch = 0, mode: str | None = None
    ) -> Iterator[None]:
        """A bracket for forwards alone, under no_grad or not; ranks may run different numbers of
        batches, none included, unless it is in lockstep. Nothing settles."""
        in_step = choose(self._mode, self._model.lockstep_only, plan, mode)
        with self._bracket(BracketKind.evaluation, LossAccount(), plan, in_step):
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
        if counted and self._in_step:
            raise OperationError(
                "engine.backward(loss_sum, tokens=...) in lockstep, where gradients are reduced "
                "before all counts are known: give the global count to engine.minibatch(tokens=...)"
            )
        factor = self._account.factor(tokens, samples)
        value = float(loss_sum.detach())
        self._own_backward = True
        try:
            (loss_sum if counted else loss_sum * factor).backward(**autograd)
        finally:
            self._own_backward = False
        self._account.add(value)

    @property
    def in_lockstep(self) -> bool:
        """Whether the open bracket runs in lockstep, where every rank must run the same number of
        microbatches: a filler too, with weight zero."""
        return self._in_step

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
        if os.getpid() != self._process:
            raise OperationError("detach in a forked child: only the process that attached may")
        if self._kind is not None:
            raise OperationError("detach inside a bracket: leave it first")
        self._attached = False
        self._at_exit.cancel()
        self._hooks.detach(self._model.groups)
        self._model.reset()
        if self._lockstep is not None:
            self._lockstep.leave()
        self._model.restore_post_forward_meshes()
        self._session.close()
        self._forget_work()

    def __del__(self) -> None:
        """An engine that is dropped is detached, so that its model stays usable and peers learn of
        it; a process that ends is dealt with elsewhere, and may have taken `sys` from this one."""
        if not self._attached or not sys or sys.is_finalizing() or os.getpid() != self._process:
            return
        warnings.warn(
            "an attached engine was dropped, which detaches it: keep it for as long as the model "
            "trains, or call its detach()",
            ResourceWarning,
            stacklevel=2,
        )
        self._kind = None
        self._session.close()  # weak references may be gone, so nobody can wait for its gathers
        self.detach()

    # -- called by FSDP2's replaced functions

    def require_open(self, group: int) -> None:
        if self._failure or (self._kind is None and self._lockstep is None):
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

    def start_gather(self, group: int, landings: list[int]) -> None:
        self.require_open(group)
        if self._lockstep is not None and self._in_step:
            self._lockstep.start_gather(group, landings)
        else:
            self._on_demand.start_gather(group, landings)

    def wait_gather(self, group: int) -> None:
        self._session.wait_gather(group)

    def drop_gather(self, group: int) -> None:
        # Why it failed, or that the session has ended, is the next call's to tell.
        with suppress(HeadraceError):
            self._session.wait_gather(group)

    def reduce(
        self, group: int, gradients: list[tuple[int, torch.Tensor]], request: Request
    ) -> torch.Tensor | None:
        self.require_open(group)
        self.backward_started()
        if self._lockstep is not None and self._in_step:
            alpha, average = self._lockstep_scale(request.divide_factor)
            return self._lockstep.reduce(group, gradients, request, alpha, average)
        self._on_demand.push(group, gradients)
        return None

    def backward_ended(self) -> None:
        if self._lockstep is not None:
            self._lockstep.end_reduction()

    def backward_dropped(self) -> None:
        if self._lockstep is not None:
            self._lockstep.discard_reduction()

    def _lockstep_scale(self, divide_factor: float | None) -> tuple[float, bool]:
        """What the sum over the shard mesh is multiplied by, and whether replicas are averaged."""
        if self._own_backward:
            return (1.0 if self._account.given else 0.0), False
        if divide_factor is not None:
            return 1.0 / divide_factor, False
        return 1.0 / self._session.world_size, True

    # -- inside

    @contextmanager
    def _bracket(
        self, kind: BracketKind, account: LossAccount, plan: int | Plan | Minibatch, in_step: bool
    ) -> Iterator[None]:
        if not self._attached or self._failure:
            self._refuse(f"engine.{kind.name}()")
        if self._kind is not None:
            raise OperationError(
                f"engine.{kind.name}() inside engine.{self._kind.name}() of the same model: leave "
                "that bracket first"
            )
        digest = digest_of(plan)
        begin = time.monotonic_ns()
        before = Traffic.of(self._session.counters())
        self._model.reset()
        self._model.check()
        try:
            sources = [] if in_step else self._model.sources()
            epoch = self._session.open(kind, sources, account.digest_weight, digest, in_step)
            if not in_step:
                self._model.mark_published()
            self._kind, self._account, self._in_step = kind, account, in_step
            steps = nullcontext() if in_step else refused_steps(self._model)
            with steps, summing(self._model.fallbacks, account.given is not None):
                yield
            outcome = self._leave(kind)
        except BaseException as error:
            self._abort(error)
            raise
        finally:
            self._kind = None
            self._in_step = self._lockstep is not None
        way = Mode.lockstep if in_step else Mode.on_demand
        self._note(kind, way, epoch, outcome, begin, before, plan_of(plan))

    def _leave(self, kind: BracketKind) -> Outcome:
        leftover = self._model.leftover()
        if leftover:
            raise OperationError(
                f"parameter '{leftover}' still holds an unsharded gradient at the end of the "
                "bracket: call set_requires_gradient_sync(True) before the last backward of "
                "every minibatch"
            )
        changed = None if self._in_step else self._model.changed()
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
        self._on_demand.end()
        settled = self._session.settle()
        self._kind = None  # hooks and the optimizer may now change shards
        totals = over_replicas(self._model.replicas, settled)
        ranks = self._session.world_size * self._model.replica_count
        outcome = account.settle(Rule(totals.flags), totals.loss_sum, totals.weight, ranks)
        if not self._in_step:
            write_gradients(
                self._model, self._session, totals.touched, outcome.scale, outcome.flagged
            )
        return outcome

    def _abort(self, error: BaseException) -> None:
        """Tells the peers why this rank leaves, and leaves FSDP2 fit for another attach."""
        self._failure = f"{type(error).__name__}: {error}"
        self._session.fail(self._failure)  # no more than a repetition where a peer failed first
        self._model.reset()
        self._forget_work()

    def _forget_work(self) -> None:
        """The session, which failed or was closed, works on nothing any more."""
        self._on_demand.end()
        if self._lockstep is not None:
            self._lockstep.drop_reduction()

    def _note(
        self,
        kind: BracketKind,
        way: Mode,
        epoch: int,
        outcome: Outcome,
        begin: int,
        before: Traffic,
        plan: Plan | None,
    ) -> None:
        end = time.monotonic_ns()
        counters = self._session.counters()
        traffic = Traffic.of(counters).since(before)
        self._report = Report.make(
            kind.name,
            way.value,
            epoch,
            outcome,
            self._account.microbatches,
            end - begin,
            traffic,
            counters.arena_bytes,
            self._session.accumulation.name,
            plan.tokens_lost if plan else None,
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
                "thread": "caller",
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
