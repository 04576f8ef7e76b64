"""`headrace bench` measures lockstep collectives on forked ranks, and says why where it cannot."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(sys.executable).with_name("headrace")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "bench", *arguments], capture_output=True, text=True, timeout=100, check=False
    )


def cases(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("operation", "tensors"), [("all-gather", 30), ("reduce-scatter", 16)], ids=str
)
def test_lockstep_collectives_are_measured_beside_their_peers(operation: str, tensors: int) -> None:
    (case,) = cases(operation, "--ranks", "3", "--mib", "1", "--rounds", "3")
    assert case["bench"] == operation.replace("-", "_")
    assert (case["case"]["ranks"], case["case"]["tensors"]) == (3, tensors)
    assert case["case"]["mib"] == pytest.approx(3, rel=0.05)
    assert list(case["ratios"]) == ["packed_baseline", "limit"]
    assert case["ms"] > 0


def test_staging_stays_below_its_closed_form() -> None:
    (case,) = cases("reduce-scatter", "--ranks", "2", "--mib", "1", "--rounds", "1")
    assert 0 < case["memory"]["arena"] < case["memory"]["bound"]


def test_planning_is_timed_for_both_collectives() -> None:
    gather, reduction = cases("plan", "--nodes", "64", "--local", "8", "--rounds", "3")
    assert (gather["bench"], reduction["bench"]) == ("plan_all_gather", "plan_reduce_scatter")
    for case in (gather, reduction):
        assert 0 < case["ms"] <= case["slowest_ms"]
        assert case["operations"] > 30 * 8


def test_balance_times_every_strategy_and_says_how_long_ranks_wait() -> None:
    lines = cases("balance", "--rounds", "1")
    timed = [line for line in lines if line["bench"] != "balance_bubbles"]
    assert {line["bench"] for line in timed} == {"karmarkar_karp", "first_fit", "plan_minibatch"}
    assert all(line["ms"] > 0 for line in timed)
    bubbles = [line for line in lines if line["bench"] == "balance_bubbles"]
    assert [line["case"]["samples_per_rank"] for line in bubbles] == [1, 2, 4, 8, 16]
    slack = 0.005  # both are heuristics: with two samples a rank they end within a thousandth
    for line in bubbles:
        assert line["bubble"]["lb-mini"] <= line["bubble"]["lb-micro"] + slack
        assert line["bubble"]["lb-micro"] <= line["bubble"]["none"]
        assert line["makespan_over_lb_mini"]["lb-mini"] == 1


def test_a_bench_that_fails_says_why() -> None:
    result = run(
        "gather", "--ranks", "2", "--mib", "1", "--rounds", "100000", "--limit-seconds", "1"
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert "rank 0 was not done within 1 s" in result.stderr
