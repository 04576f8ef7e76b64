"""`python -m headrace.lengths` turns a Parquet column into lengths for `headrace balance`."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("headrace")


def run(*arguments: str, first: str = "pass") -> subprocess.CompletedProcess[str]:
    """The module as `python -m` runs it, after the statement `first`."""
    program = (
        f"import runpy, sys; {first}; runpy.run_module('headrace.lengths', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def table(tmp_path: Path) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {
        "input_ids": [[5] * length for length in (3, 1, 7, 2)],
        "n": [30, 10, 70, 20],
        "text": ["a", "b", "c", "d"],
        "gap": [[1], [2], None, [3]],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "data.parquet", row_group_size=2)
    return str(tmp_path / "data.parquet")


def test_lists_are_counted_and_numbers_printed(table: str) -> None:
    for arguments, printed in (((), "3\n1\n7\n2\n"), (("--column", "n"), "30\n10\n70\n20\n")):
        result = run(table, *arguments)
        assert (result.returncode, result.stdout, result.stderr) == (0, printed, "")


def test_they_pipe_into_balance(table: str) -> None:
    result = subprocess.run(
        [PROGRAM, "balance", "--lengths", "-", "--world-size", "2", "--cap", "8"],
        input=run(table).stdout,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "4 samples with 13 tokens on 2 ranks" in result.stdout


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("ids", "no column 'ids'; there are: input_ids, n, text, gap"),
        ("text", "the column 'text' holds string"),
        ("gap", "the column 'gap' has no value in row 2"),
    ],
)
def test_a_column_without_lengths_is_named(table: str, column: str, said: str) -> None:
    result = run(table, "--column", column)
    assert result.returncode == 1
    assert said in result.stderr


def test_a_wrong_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "text.parquet").write_text("no Parquet")
    for name in ("none.parquet", "text.parquet"):
        result = run(str(tmp_path / name))
        assert result.returncode == 1
        assert result.stderr.startswith("headrace.lengths: ")
        assert f"{tmp_path / name}: " in result.stderr


def test_without_pyarrow_it_says_what_to_install() -> None:
    result = run("data.parquet", first="sys.modules['pyarrow'] = None")
    assert result.returncode == 1
    assert "pip install pyarrow" in result.stderr
