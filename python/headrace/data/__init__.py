"""Balanced minibatches of variable-length samples, planned alike on every rank without talking.

`minibatches` and `Minibatches` load a map-style dataset in this process. `MinibatchSampler` deals
one through a torch DataLoader and its workers, `MinibatchStream` an iterable one. `PackedCollator`
lays a microbatch's samples end to end; `headrace.data.chat` makes samples of conversations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace._engine import CommunicationModel, CostModel, Plan, plan
from headrace.data.minibatch import Minibatch
from headrace.data.minibatches import Minibatches, minibatches
from headrace.data.partitions import balanced_partitions
from headrace.data.place import Lost
from headrace.data.sampler import MinibatchSampler

if TYPE_CHECKING:
    from headrace.data import chat
    from headrace.data.packed import PackedCollator
    from headrace.data.stream import MinibatchStream

__all__ = [
    "CommunicationModel",
    "CostModel",
    "Lost",
    "Minibatch",
    "MinibatchSampler",
    "MinibatchStream",
    "Minibatches",
    "PackedCollator",
    "Plan",
    "balanced_partitions",
    "chat",
    "minibatches",
    "plan",
]

# Imported when first used: they need torch, which planning does not.
_lazy = {"MinibatchStream": "stream", "PackedCollator": "packed"}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _lazy:
        value = getattr(import_module(f"headrace.data.{_lazy[name]}"), name)
        globals()[name] = value
        return value
    if name == "chat":
        return import_module("headrace.data.chat")
    raise AttributeError(f"module 'headrace.data' has no attribute {name!r}")
