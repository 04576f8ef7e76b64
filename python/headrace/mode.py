"""How an attached model communicates, and which way the brackets of "auto" go."""

import operator
from enum import Enum

from headrace._engine import Plan
from headrace.data import Minibatch
from headrace.errors import OperationError


class Mode(Enum):
    on_demand = "on-demand"
    lockstep = "lockstep"
    auto = "auto"

    @classmethod
    def parse(cls, value: object) -> "Mode":
        for mode in cls:
            if mode.value == value:
                return mode
        known = ", ".join(repr(mode.value) for mode in cls)
        raise OperationError(f"mode={value!r}: the modes are {known}")


def plan_of(plan: object) -> Plan | None:
    """The balancer's plan that a bracket was given, if it was given one."""
    if isinstance(plan, Minibatch):
        return plan.plan
    return plan if isinstance(plan, Plan) else None


def digest_of(plan: object) -> int:
    """64 bits that agree on all ranks where they train by the same plan."""
    if isinstance(plan, Minibatch):
        return plan.plan_digest
    if isinstance(plan, Plan):
        return plan.digest()
    try:
        return operator.index(plan) & (2**64 - 1)
    except TypeError:
        raise OperationError(
            f"plan={plan!r}: give a minibatch of headrace.data, its plan, or a whole number"
        ) from None


def choose(mode: Mode, lockstep_only: bool, plan: object, wanted: str | None) -> bool:
    """Whether a bracket runs in lockstep.

    The rule of "auto", from what is the same on every rank: in lockstep where the model has
    something that on-demand cannot carry; else as the loop wants; else as the balancer's plan
    recommends, in lockstep only with equal counts of microbatches; on demand without a plan, since
    that is right whatever the counts are.
    """
    asked = None if wanted is None else Mode.parse(wanted)
    if asked is Mode.auto:
        asked = None
    if mode is not Mode.auto:
        if asked not in (None, mode):
            raise OperationError(
                f"mode={wanted!r} in a bracket of an engine in mode {mode.value!r}: "
                "attach with mode='auto' to choose by bracket"
            )
        return mode is Mode.lockstep
    if lockstep_only:
        if asked is Mode.on_demand:
            raise OperationError(
                "mode='on-demand' for a model with groups that stock collectives carry, or with a "
                "gradient divide factor: such a model runs in lockstep alone"
            )
        return True
    if asked is not None:
        return asked is Mode.lockstep
    made = plan_of(plan)
    if made is None:
        return False
    return made.equal_counts and made.recommendation == Mode.lockstep.value
