"""Headrace: FSDP2 training in which ranks meet once a minibatch."""

from headrace import _engine, errors

__version__ = _engine.__version__
__all__ = ["errors"]
