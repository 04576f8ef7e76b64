"""`headrace info` says what this machine can do, and why not what it cannot."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(sys.executable).with_name("headrace")


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False, **options
    )


def info(**options: Any) -> dict[str, Any]:
    result = run("info", "--json", **options)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def transport(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [entry for entry in report["transports"] if entry["name"] == name]
    return found


def test_cores_are_those_that_the_process_may_use() -> None:
    usable = os.sched_getaffinity(0)
    assert info()["cores_usable"] == len(usable)
    one = min(usable)
    report = info(preexec_fn=lambda: os.sched_setaffinity(0, {one}))
    assert report["cores_usable"] == 1


def test_memory_is_in_bytes() -> None:
    report = info()
    assert report["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < report["memory_available_bytes"] < report["memory_bytes"]


def test_instructions_are_those_of_the_processor() -> None:
    flags = {
        word.replace("_", "")
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("flags")
        for word in line.split()
    }
    found = {entry["name"]: entry["ok"] for entry in info()["instructions"]}
    assert found, "no instruction set was looked for"
    if flags:  # x86
        assert found == {name: name in flags for name in found}


def test_host_kernels_use_the_best_instructions_there_are() -> None:
    report = info()
    has = {entry["name"]: entry["ok"] for entry in report["instructions"]}
    if has.get("avx512f"):
        expected = "avx512"
    elif has.get("avx2") and has.get("fma"):
        expected = "avx2"
    else:
        expected = "scalar"
    assert report["host_kernels"] == expected


def test_shm_is_tried_and_available_here() -> None:
    shm = transport(info(), "shm")
    names = [entry["name"] for entry in shm["checks"]]
    assert names == ["memfd", "unix socket", "futex", "pidfd", "wiring"]
    assert shm["available"] is True, shm["reason"]
    assert all(entry["ok"] for entry in shm["checks"])


def test_shm_without_descriptors_is_unavailable_and_says_why() -> None:
    # Standard streams and one more descriptor: memory can be had, a pair of sockets cannot.
    report = info(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)))
    shm = transport(report, "shm")
    assert shm["available"] is False
    assert "unix socket: socketpair: Too many open files" in shm["reason"]
    assert {entry["name"]: entry["ok"] for entry in shm["checks"]}["memfd"] is True


def test_cuda_is_tried_where_it_is_built_and_says_why_not() -> None:
    cuda = transport(info(), "cuda")
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("an NVIDIA GPU may be here")
    assert cuda["available"] is False
    texts = ("NVIDIA GPU here", "NVIDIA GPU with a driver here", "without a CUDA compiler")
    assert any(text in cuda["reason"] for text in texts)


@pytest.mark.parametrize("name", ["ucx", "nccl"])
def test_a_backend_that_is_not_built_says_so(name: str) -> None:
    entry = transport(info(), name)
    assert entry["available"] is False
    assert "not in this version" in entry["reason"]


def test_text_and_json_agree() -> None:
    text = run("info").stdout
    report = info()
    assert text.startswith(f"headrace {report['version']} on {report['kernel']}\n")
    words = [line.split() for line in text.splitlines()]
    for entry in report["transports"]:
        assert [entry["name"], "yes" if entry["available"] else "no"] in [w[:2] for w in words]


def test_a_wrong_command_line_is_refused_with_a_hint() -> None:
    for arguments in (), ("infos",), ("info", "--jason"):
        result = run(*arguments)
        assert result.returncode != 0
        assert "--help" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inof",), ["'inof'", "info", "bench", "plan"]),
        (("plan", "chekc"), ["'chekc'", "check", "memory", "show"]),
        (("bench", "gahter"), ["'gahter'", "gather", "reduce-scatter"]),
    ],
)
def test_an_unknown_sub_command_is_named_beside_those_there_are(
    arguments: tuple[str, ...], words: list[str]
) -> None:
    result = run(*arguments)
    assert result.returncode != 0
    for word in words:
        assert word in result.stderr
