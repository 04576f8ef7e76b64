"""`headrace plan` proves and sizes lockstep plans from integers alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

PROGRAM = Path(sys.executable).with_name("headrace")
PAPER = ("--nodes", "64", "--local", "8", "--shard-mib", "32")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "plan", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def report(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_check_counts_what_the_paper_counts() -> None:
    counted = report("check", "--local", "8", "--nodes", "2:1024")
    assert (counted["accepted"], counted["rejected"]) == (458_304, 65_472)
    assert counted["plans"] == 1023 * 8 * 32 * 2
    assert (counted["checked"], counted["failed"]) == (4 * 458_304, 0)
    assert counted["passes"] == [1, 4]


def test_check_of_one_world_says_what_is_rejected_and_what_to_choose() -> None:
    result = run("check", "--local", "8", "--nodes", "9")
    assert (result.returncode, result.stderr) == (0, "")
    # With nine nodes only waves of 1, 2, 4 and 8 do not bring contributors 8 and 9 together.
    assert ["accepted", str(4 * 32 * 2)] == result.stdout.splitlines()[2].split()
    assert "choose a width that divides 8" in result.stdout


@pytest.mark.parametrize("nodes", ["0", "5:", ":5", "5:2", "two", "2:3:4", "-1:4", "2:99999", ""])
def test_a_wrong_range_is_refused_by_name_with_what_to_give(nodes: str) -> None:
    result = run("check", f"--nodes={nodes}")
    assert result.returncode != 0
    assert f"--nodes: {nodes}" in result.stderr
    assert "A:B" in result.stderr


@pytest.mark.parametrize(
    ("mode", "reduce_scatter", "backward"),
    [("in-place", 0.594, 3.72), ("slot-reuse", 0.164, 2.29)],
)
def test_memory_is_bound_as_in_the_paper(mode: str, reduce_scatter: float, backward: float) -> None:
    memory = report("memory", *PAPER, "--mode", mode)
    assert round(memory["reduce_scatter_bound"]["ns"], 3) == reduce_scatter
    assert round(memory["backward_bound"]["ns"], 2) == backward
    assert memory["stock"]["ns"] == 4.0
    assert memory["backward"]["bytes"] <= memory["backward_bound"]["bytes"]


def test_memory_adds_up_and_is_in_bytes() -> None:
    memory = report("memory", *PAPER)
    regions = {region["name"]: region for region in memory["regions"]}
    shard = 32 << 20
    assert memory["unsharded"]["bytes"] == 512 * shard
    assert regions["landing"]["bytes"] == 2 * 512 * shard
    assert regions["stage"]["bytes"] == 63 * shard
    assert regions["outbox"]["bytes"] == 2 * 63 * 2 * shard
    for region in regions.values():
        assert region["bytes"] == region["bytes_a_bank"] * region["banks"]
    parts = ("staging", "outbox", "inbox", "spare")
    assert sum(regions[part]["bytes"] for part in parts) == memory["reduce_scatter"]["bytes"]


def test_memory_with_fp32_gradients_stages_twice_as_much() -> None:
    def staging(*arguments: str) -> int:
        regions = report("memory", *PAPER, *arguments)["regions"]
        (found,) = [region["bytes"] for region in regions if region["name"] == "staging"]
        return found

    assert staging("--gather", "bf16", "--gradient", "fp32") == 2 * staging()


def test_memory_text_and_json_agree() -> None:
    lines = [line.split() for line in run("memory", *PAPER).stdout.splitlines()]
    for region in report("memory", *PAPER)["regions"]:
        assert [
            region["name"],
            str(region["banks"]),
            str(region["bytes_a_bank"]),
            str(region["bytes"]),
            f"{region['ns']:.3f}",
        ] in lines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("memory", "--nodes", "0", "--local", "8", "--shard-mib", "1"), "--nodes"),
        (("memory", "--nodes", "2", "--local", "8"), "--shard-mib"),
        (("memory", *PAPER, "--mode", "copy"), "slot-reuse"),
        (("memory", *PAPER, "--width", "9"), "choose 1 to 8"),
        (
            ("memory", *PAPER, "--mode=slot-reuse", "--gather=bf16", "--gradient=fp32"),
            "choose in-place mode",
        ),
        ((), "--help"),
    ],
)
def test_a_wrong_request_is_refused_with_what_to_choose(
    arguments: tuple[str, ...], said: str
) -> None:
    result = run(*arguments)
    assert result.returncode != 0
    assert said in result.stderr


SHOW = ("show", "--nodes", "5", "--local", "4")


@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter"])
def test_show_prints_a_table_a_rank_or_a_picture(collective: str) -> None:
    for arguments in ((), ("--rank", "7"), ("--format", "svg")):
        result = run(*SHOW, "--collective", collective, *arguments)
        assert (result.returncode, result.stderr) == (0, "")
        if "svg" in arguments:
            assert ElementTree.fromstring(result.stdout).tag.endswith("svg")
        else:
            assert result.stdout.lower().startswith(f"{collective} on 5 nodes of 4 ranks")
            assert ("rank 7" in result.stdout) == ("7" in arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--rank", "20"), "20 is not one of the 20 ranks"),
        (("--collective", "reduce-scatter", "--width", "3"), "3"),
        (("--collective", "broadcast"), "broadcast"),
        (("--transfers", "0"), "--transfers"),
    ],
)
def test_show_refuses_what_does_not_exist(arguments: tuple[str, ...], sentence: str) -> None:
    refused = run(*SHOW, *arguments)
    assert refused.returncode != 0
    assert sentence in refused.stderr
