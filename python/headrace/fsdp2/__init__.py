"""FSDP2 internals, one module a supported torch range. Nothing else in headrace touches them."""

import inspect
from importlib import import_module
from types import ModuleType

import torch

from headrace.errors import OperationError

_modules = {(2, 13): "torch_2_13"}


def hooks() -> ModuleType:
    """The patches for the running torch, after comparing the signatures they replace or call."""
    version = torch.__version__
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    name = _modules.get(release)
    if name is None:
        supported = ", ".join(f"{major}.{minor}" for major, minor in _modules)
        raise OperationError(
            f"torch {version} is not supported: headrace replaces FSDP2 internals of torch "
            f"{supported}; install one of these"
        )
    module = import_module(f"headrace.fsdp2.{name}")
    differences = signature_differences(module.expected_signatures())
    if differences:
        raise OperationError(
            f"FSDP2 of torch {version} differs from what headrace replaces: "
            f"{'; '.join(differences)}; install an unmodified torch of this version, or detach "
            "what patched it"
        )
    return module


def signature_differences(expected: dict[tuple[object, str], str]) -> list[str]:
    """What is missing or takes other parameters: one phrase each. Values are parameter names in
    order."""
    found = []
    for (owner, name), parameters in expected.items():
        label = f"{getattr(owner, '__name__', owner)}.{name}"
        function = getattr(owner, name, None)
        if function is None:
            found.append(f"{label} is missing")
            continue
        actual = " ".join(inspect.signature(function).parameters)
        if actual != parameters:
            found.append(f"{label} takes ({actual}) and not ({parameters})")
    return found
