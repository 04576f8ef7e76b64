"""Options of every command: a wrong number is named with its range, all missing ones at once."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("headrace")


def refused(*arguments: str) -> str:
    result = subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode != 0
    assert result.stdout == ""
    return result.stderr


@pytest.mark.parametrize(
    ("command", "option", "numbers"),
    [
        ("bench gather", "--ranks", "1 to 64"),
        ("bench reduce-scatter", "--rounds", "1 to 100000"),
        ("bench plan", "--local", "1 to 64"),
        ("plan check", "--local", "1 to 64"),
        ("plan memory", "--shard-mib", "1 to 1048576"),
        ("plan show", "--nodes", "1 to 64"),
        ("plan show", "--rank", "0 to 4095"),
        ("balance", "--world-size", "1 to 1048576"),
        ("balance", "--cap", "1 or more"),
    ],
)
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("abc", "'abc' is not a whole number"),
        ("2.5", "'2.5' is not a whole number"),
        ("3x", "'3x' is not a whole number"),
        ("-1", "-1 is out of range"),
        ("99999999999999999999", "does not fit 63 bits"),
    ],
)
def test_a_wrong_number_is_named_with_its_range(
    command: str, option: str, numbers: str, value: str, problem: str
) -> None:
    said = refused(*command.split(), f"{option}={value}")
    assert said.startswith(f"{option}: ")
    assert problem in said
    assert f"give {numbers}" in said


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("plan show", "--nodes, --local"),
        ("plan show --local 4", "--nodes"),
        ("plan memory --local 8", "--nodes, --shard-mib"),
        ("balance", "--lengths, --world-size, --cap"),
    ],
)
def test_all_that_is_missing_is_listed(command: str, missing: str) -> None:
    words = command.split(" --")[0]
    assert refused(*command.split()) == (
        f"headrace {words} needs {missing}; see headrace {words} --help\n"
    )
