"""scripts/setup.sh where something is missing: it installs it if it may, or says what to run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup.sh"
TOOLS = ("bash", "env", "dirname", "awk", "sort", "tr", "cat", "rm")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A directory of programs: a shell and a few tools, but no compiler, no sudo, no apt-get."""
    for tool in TOOLS:
        where = shutil.which(tool)
        assert where, f"no {tool} here"
        (tmp_path / tool).symlink_to(where)
    return tmp_path


def program(machine: Path, name: str, script: str) -> None:
    file = machine / name
    file.write_text(f"#!{machine}/bash\n{script}\n")
    file.chmod(0o755)


def setup(machine: Path, *arguments: str, python: str = sys.executable):
    return subprocess.run(
        [SETUP, *arguments],
        env={"PATH": str(machine), "PYTHON": python},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_user_who_may_not_install_gets_the_line_to_run(machine: Path) -> None:
    program(machine, "id", "echo 1000")
    program(machine, "apt-get", "exit 0")
    program(machine, "sudo", "exit 1")  # asks for a password
    result = setup(machine)
    assert result.returncode == 1
    (line,) = [text.strip() for text in result.stderr.splitlines() if "apt-get install" in text]
    assert line.startswith("sudo apt-get update && sudo apt-get install -y ")
    assert {"g++", "cmake", "ninja-build", "libfmt-dev", "libgtest-dev"} <= set(line.split())


@pytest.mark.parametrize("user", ["root", "sudo"])
def test_who_may_install_does_so_after_an_update(machine: Path, user: str) -> None:
    log = machine / "log"
    program(machine, "id", "echo 0" if user == "root" else "echo 1000")
    program(machine, "sudo", 'shift; "$@"')
    program(machine, "apt-get", f'echo "$@" >>{log}')
    result = setup(machine)
    update, install = log.read_text().splitlines()
    assert update.split()[-1] == "update"
    assert " install -y " in install
    assert {"g++", "cmake", "libcli11-dev"} <= set(install.split())
    # This apt-get changed nothing, which must not pass for success.
    assert result.returncode == 1
    assert "still missing after the installation: g++ cmake" in result.stderr


def test_a_failed_installation_is_reported(machine: Path) -> None:
    program(machine, "id", "echo 0")
    program(machine, "apt-get", "echo no network >&2; exit 100")
    result = setup(machine)
    assert result.returncode == 1
    assert "apt-get could not install: g++ cmake" in result.stderr


def test_an_old_cmake_counts_as_missing(machine: Path) -> None:
    program(machine, "id", "echo 1000")
    program(machine, "cmake", "echo cmake version 3.22.1")
    assert " cmake " in setup(machine).stderr
    program(machine, "cmake", "echo cmake version 3.30.0")
    assert " cmake " not in setup(machine).stderr


def test_an_old_or_absent_python_is_named(machine: Path) -> None:
    assert "no 'python9' here" in setup(machine, python="python9").stderr
    program(machine, "python3.8", '[ "$1" = --version ] && echo Python 3.8.18')
    result = setup(machine, python="python3.8")
    assert result.returncode == 1
    assert "python3.8 is Python 3.8.18; Python 3.11 or newer is needed" in result.stderr


def test_an_unknown_target_is_named(machine: Path) -> None:
    result = setup(machine, "everything")
    assert result.returncode == 1
    assert "unknown target 'everything': build, dev or bench" in result.stderr
