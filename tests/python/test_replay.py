"""`headrace replay`: communication of training steps on forked ranks; none is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faults import is_gone

PROGRAM = Path(sys.executable).with_name("headrace")
SMALL = ["--ranks", "3", "--samples-per-rank", "2", "--steps", "2", "--model-mib", "1"]


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "replay", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def replayed(*arguments: str, text: str = "") -> dict[str, Any]:
    result = run(*arguments, *SMALL, "--communication", "0.5", "--json", text=text)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


@pytest.mark.parametrize("threads", ["--worker-threads", "--inline"])
def test_every_mode_is_replayed_beside_its_compute_alone(threads: str) -> None:
    study = replayed("--lengths", "longalign", threads)
    assert [arm["name"] for arm in study["arms"]] == [
        "on-demand lb-mini",
        "lockstep lb-micro",
        "packed lb-micro",
    ]
    for arm in study["arms"]:
        assert arm["step_ms"] > arm["ideal_ms"] > 0
        assert 0 <= arm["overlap"] <= 1
        assert arm["communication_over_compute"] > 0
        for rank in arm["ranks"]:
            assert rank["compute"] + rank["communication"] + rank["waiting"] == pytest.approx(1)
    assert study["scales"]["bytes"] > 1000
    assert study["scales"]["time"] > 0


def test_lengths_come_from_the_input_and_arms_by_name() -> None:
    study = replayed(
        "--lengths", "-", "--arm", "lockstep:none", text=" ".join(["4096"] * 11 + ["65536"])
    )
    (arm,) = study["arms"]
    assert arm["name"] == "lockstep none"
    assert study["cap"] == 65536


@pytest.mark.parametrize(
    ("arguments", "text", "message"),
    [
        (["--lengths", "-"], "100 200", "need 12 lengths, but there are 2"),
        (["--lengths", "-", "--cap", "50"], "100 " * 12, "cap"),
        (["--lengths", "no-such-file"], "", "no-such-file"),
        (["--lengths", "longalign", "--mode", "dance"], "", "no mode 'dance'"),
        (["--lengths", "longalign", "--machine", "abacus"], "", "no machine 'abacus'"),
        (["--lengths", "longalign", "--model", "2B"], "", "2B"),
        (["--lengths", "longalign", "--arm", "lockstep"], "", "on-demand:lb-mini"),
        (["--lengths", "longalign", "--model-mib", "3000"], "", "over the limit of 16.0 GiB"),
        ([], "", "--lengths"),
    ],
)
def test_a_bad_request_is_an_error_before_any_rank_starts(
    arguments: list[str], text: str, message: str
) -> None:
    small = SMALL if "--model-mib" not in arguments else SMALL[:-2]
    result = run(*small, *arguments, text=text)
    assert (result.returncode, result.stdout) == (1, "")
    assert message in result.stderr


@pytest.fixture
def long_replay() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """One that would take minutes, with its ranks' process numbers."""
    arguments = ["--lengths", "longalign", "--ranks", "3", "--steps", "200", "--model-mib", "1"]
    process = subprocess.Popen(
        [PROGRAM, "replay", *arguments, "--communication", "0.01"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    before: list[int] = []
    deadline = time.monotonic() + 60
    # The first ranks calibrate and end; the run's own stay.
    while time.monotonic() < deadline:
        time.sleep(1.5)
        now = [int(child) for child in children.read_text().split()]
        if len(now) == 3 and now == before:
            break
        before = now
    yield process, now
    process.kill()
    process.wait()


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < deadline, "a rank is still there"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_ranks_go_with_the_program(
    long_replay: tuple[subprocess.Popen[str], list[int]], number: signal.Signals
) -> None:
    process, ranks = long_replay
    process.send_signal(number)
    assert process.wait(timeout=20) != 0
    wait_until_gone(ranks)


def test_a_rank_that_dies_ends_the_replay_and_is_named(
    long_replay: tuple[subprocess.Popen[str], list[int]],
) -> None:
    process, ranks = long_replay
    os.kill(ranks[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "rank 1 was ended by signal 9" in errors
    wait_until_gone(ranks)
