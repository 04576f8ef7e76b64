"""The layer check finds every kind of forbidden include, and none in a tree in order."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "scripts" / "check_layers.py"


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CHECK, root], capture_output=True, text=True, timeout=60, check=False
    )


def write(root: Path, name: str, *lines: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree that uses everything that is allowed."""
    write(tmp_path, "engine/base/error.h", "#include <string>")
    write(tmp_path, "engine/plan/map.h", '#include "base/error.h"')
    write(tmp_path, "engine/balance/cost.h", '#include "plan/map.h"', '#include "base/error.h"')
    write(tmp_path, "engine/transport/transport.h", '#include "base/error.h"')
    write(tmp_path, "engine/transport/shm/lane.h", '#include "transport/transport.h"')
    write(tmp_path, "engine/transport/fake/lane.h", '#include "transport/fake/lane.h"')
    write(tmp_path, "engine/session/session.cc", '#include "transport/shm/lane.h"')
    write(tmp_path, "bench/arms.h", '#include "session/session.h"')
    write(tmp_path, "cli/bench.cc", '#include "bench/arms.h"')
    write(tmp_path, "cli/main.cc", "#include <CLI/CLI.hpp>", '#include "balance/cost.h"')
    write(tmp_path, "python/bindings/module.cc", '#include "bindings.h"', "#include <Python.h>")
    return tmp_path


def test_a_tree_in_order_passes(tree: Path) -> None:
    result = check(tree)
    assert (result.returncode, result.stdout) == (0, "")


def test_this_repository_is_in_order() -> None:
    result = check(ROOT)
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("file", "include", "why"),
    [
        ("engine/base/bad.h", '"plan/map.h"', "base may include only base"),
        ("engine/plan/bad.cc", '"runtime/arena.h"', "plan may include only base, plan"),
        ("engine/runtime/bad.cc", '"kernel/cast.h"', "runtime may include only"),
        ("engine/transport/bad.h", '"collective/gather.h"', "transport may include only"),
        ("engine/collective/bad.h", '"session/session.h"', "collective may include only"),
        ("engine/balance/bad.h", '"runtime/arena.h"', "balance may include only"),
        ("engine/sim/bad.h", '"transport/transport.h"', "sim may include only"),
        ("engine/session/bad.h", '"balance/cost.h"', "session may include only"),
        ("engine/transport/shm/bad.h", '"transport/fake/lane.h"', "not include backend fake"),
        ("engine/transport/shm/bad.h", '"plan/map.h"', "shm may not include plan"),
        ("engine/base/bad.h", '"../plan/map.h"', "write the path from engine/"),
        ("engine/base/bad.h", '"error.h"', "write the path from engine/"),
        ("engine/plan/bad.h", '"widgets/map.h"', "'widgets' is no layer"),
        ("engine/session/bad.h", "<nanobind/nanobind.h>", "only bindings and cli"),
        ("engine/session/bad.h", "<torch/torch.h>", "only bindings and cli"),
        ("python/bindings/bad.cc", "<torch/extension.h>", "no torch headers"),
        ("cli/bad.cc", '"bindings/bindings.h"', "cli may not include bindings"),
        ("bench/bad.cc", '"cli/info.h"', "bench may not include bindings, cli, replay"),
        ("python/bindings/bad.cc", '"bench/arms.h"', "bindings may not include bench, cli, replay"),
        ("engine/session/bad.cc", '"bench/arms.h"', "'bench' is no layer"),
    ],
)
def test_a_forbidden_include_is_named(tree: Path, file: str, include: str, why: str) -> None:
    write(tree, file, "// first line", f"#include {include}")
    result = check(tree)
    assert result.returncode == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith(f'{file}:2: "{include[1:-1]}": ')
    assert why in line


def test_a_directory_outside_the_order_is_named(tree: Path) -> None:
    write(tree, "engine/widgets/widget.h")
    result = check(tree)
    assert result.returncode == 1
    assert result.stdout.startswith(
        "engine/widgets/widget.h:1: 'widgets' is not in the layer order"
    )
