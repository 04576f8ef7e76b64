#!/usr/bin/env python3
"""Rejects includes that break the order of the layers (docs/architecture.md).

usage: check_layers.py [ROOT]

Prints one line an offence; the exit status is 1 where there is any.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Each layer may include itself and what stands in its row. Directories are relative to the root.
CHAIN = ["base", "plan", "runtime", "kernel", "transport", "collective", "session"]
MAY_INCLUDE = {layer: set(CHAIN[: i + 1]) for i, layer in enumerate(CHAIN)}
MAY_INCLUDE["balance"] = {"base", "plan", "balance"}
MAY_INCLUDE["sim"] = {"base", "plan", "sim"}
EVERY_LAYER = set(MAY_INCLUDE)
# Above all layers: what each top may not include. The program runs benchmarks and replays.
TOPS = {
    "python/bindings": {"bench", "cli", "replay"},
    "bench": {"bindings", "cli", "replay"},
    "replay": {"bindings", "cli"},
    "cli": {"bindings"},
}

# Libraries that belong to the top alone, so that the engine can be used without them.
TOP_ONLY = ("nanobind/", "CLI/", "torch/", "ATen/", "c10/", "Python.h")

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def includes(file: Path) -> Iterator[tuple[int, bool, str]]:
    """(line number, whether quoted, path) of every include of the file."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1] == '"', match[2]


def backend_of(parts: tuple[str, ...]) -> str | None:
    """The transport backend that a path below engine/ belongs to."""
    return parts[1] if parts[0] == "transport" and len(parts) > 2 else None


def engine_offence(own: tuple[str, ...], quoted: bool, target: str) -> str | None:
    """Why a file at engine/<own> may not include the target; None where it may."""
    if target.startswith(TOP_ONLY):
        return "only bindings and cli may use this library"
    if not quoted:
        return None
    other = Path(target).parts
    if ".." in other or len(other) < 2:
        return "write the path from engine/, such as base/error.h"
    layer = own[0]
    if other[0] not in EVERY_LAYER:
        return f"'{other[0]}' is no layer of the engine"
    if other[0] not in MAY_INCLUDE[layer]:
        return f"{layer} may include only {', '.join(sorted(MAY_INCLUDE[layer]))}"
    backend = backend_of(own)
    if backend is not None and other[0] == "plan":
        return f"backend {backend} may not include plan"
    if backend is not None and backend_of(other) not in (None, backend):
        return f"backend {backend} may not include backend {backend_of(other)}"
    return None


def top_offence(top: str, quoted: bool, target: str) -> str | None:
    """Why a file of a top may not include the target; None where it may."""
    if target.startswith(("torch/", "ATen/", "c10/")):
        return "no torch headers: addresses, sizes and streams cross as integers"
    parts = Path(target).parts
    if quoted and ".." in parts:
        return "write the path from engine/ or from this directory"
    if quoted and TOPS[top].intersection(parts[:-1]):
        return f"{Path(top).name} may not include {', '.join(sorted(TOPS[top]))}"
    return None


def offences(root: Path) -> Iterator[str]:
    """One line an offence, `file:line: "target": why`, in file order."""
    engine = root / "engine"
    for file in sorted(f for f in engine.rglob("*") if f.suffix in SUFFIXES):
        own = file.relative_to(engine).parts
        if own[0] not in EVERY_LAYER:
            yield f"{file.relative_to(root)}:1: '{own[0]}' is not in the layer order"
            continue
        for number, quoted, target in includes(file):
            if why := engine_offence(own, quoted, target):
                yield f'{file.relative_to(root)}:{number}: "{target}": {why}'
    for top in TOPS:
        for file in sorted(f for f in (root / top).rglob("*") if f.suffix in SUFFIXES):
            for number, quoted, target in includes(file):
                if why := top_offence(top, quoted, target):
                    yield f'{file.relative_to(root)}:{number}: "{target}": {why}'


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    if not (root / "engine").is_dir():
        print(f"{root} has no engine/", file=sys.stderr)
        return 2
    found = list(offences(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
