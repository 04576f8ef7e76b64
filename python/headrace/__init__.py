"""Headrace: FSDP2 training in which ranks meet once a minibatch.

engine = headrace.attach(model)
with engine.minibatch(tokens=global_tokens):
    for micro in microbatches:          # counts may differ from rank to rank
        engine.backward(loss_sum(model, micro))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace import errors
from headrace._engine import __version__

if TYPE_CHECKING:
    from headrace import data
    from headrace._attach import attach
    from headrace.engine import Engine
    from headrace.report import Report

__all__ = ["Engine", "Report", "__version__", "attach", "data", "errors"]

# Imported when first used: they need torch, which `import headrace` alone does not.
_lazy = {"attach": "_attach", "Engine": "engine", "Report": "report"}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _lazy:
        value = getattr(import_module(f"headrace.{_lazy[name]}"), name)
        globals()[name] = value
        return value
    if name == "data":
        return import_module("headrace.data")
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
