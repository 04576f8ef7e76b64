"""scripts/gpu.sh on a machine whose GPU, compiler, MPS and programs are shell scripts."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("runtime", "kernel", "transport", "collective", "support")
ONE_TEST_PASSES = "echo '[  PASSED  ] 1 test.'"
DAEMON = """
pid_file=$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
if [ "$1" = -d ]; then
  setsid sleep 100 </dev/null >/dev/null 2>&1 &
  echo $! | tee "$pid_file" >>daemons
  exit
fi
read -r words
echo "$words" >>mps
if [ "$words" = quit ]; then kill "$(cat "$pid_file")"; rm "$pid_file"; fi
"""


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "scripts", root / "scripts")
        for folder in ("bin", "build/gpu/tests", "build/gpu/bench"):
            (root / folder).mkdir(parents=True)
        self.tool("nvidia-smi", "echo 'GPU 0: A GPU (UUID: 1)'")
        for name in ("nvcc", "g++", "ninja", "python3"):
            self.tool(name, "[ -t 0 ] || cat >/dev/null")
        self.tool("cmake", 'echo "$CMAKE_PREFIX_PATH $*" >>cmake')
        self.tool("compute-sanitizer", 'while [[ $1 != */* ]]; do shift; done; "$@"')
        self.tool("nvidia-cuda-mps-control", DAEMON)
        for program in PROGRAMS:
            self.program(program, ONE_TEST_PASSES)
        self.environment = {"PATH": f"{root}/bin:/usr/bin:/bin", "MPS_SECONDS": "20"}

    def tool(self, name: str, script: str) -> None:
        self._write(self.root / "bin" / name, script)

    def program(self, layer: str, script: str) -> None:
        self._write(self.root / f"build/gpu/tests/{layer}_gpu_test", script)

    def _write(self, file: Path, script: str) -> None:
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.root / "scripts/gpu.sh", *arguments],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        process = self.start(*arguments, **environment)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def lines(self, name: str) -> list[str]:
        file = self.root / name
        return file.read_text().splitlines() if file.exists() else []

    def is_left(self, pids: list[str]) -> bool:
        """A killed process takes its time to end."""
        limit = time.monotonic() + 10
        while left := any(is_running(int(pid)) for pid in pids):
            if time.monotonic() > limit:
                break
            time.sleep(0.05)
        return left


def is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def phase(output: str, name: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith(f"gpu-test: {name} (")]
    return line


def test_where_there_is_no_gpu_one_line_says_so(machine: Machine) -> None:
    (machine.root / "bin/nvidia-smi").unlink()
    text = "gpu-test: no NVIDIA GPU here: nvidia-smi is not on the PATH\n"
    assert machine.run("test") == (1, text)
    assert machine.run("bench") == (1, text.replace("test", "bench", 1))
    machine.tool("nvidia-smi", "echo 'no driver'; exit 9")
    assert machine.run("test") == (
        1,
        "gpu-test: no NVIDIA GPU here: nvidia-smi -L says: no driver\n",
    )


def test_missing_libraries_are_named_together(machine: Machine) -> None:
    machine.tool("g++", "grep -qE 'gtest|gmock|json'")
    status, output = machine.run("test")
    assert status == 1
    assert "missing: libfmt-dev libcli11-dev. " in output


def test_the_folder_that_was_carried_is_found_and_another_one_may_be_given(
    machine: Machine,
) -> None:
    (machine.root / "build/deps/usr").mkdir(parents=True)
    machine.tool("g++", 'cat >/dev/null; echo "$CPLUS_INCLUDE_PATH" >>includes')
    machine.run("test", "kernel")
    assert machine.lines("includes")[0] == f"{machine.root}/build/deps/usr/include"
    assert machine.lines("cmake")[0].startswith(f"{machine.root}/build/deps/usr --preset gpu")
    machine.run("test", "kernel", CMAKE_PREFIX_PATH="/a:/b")
    assert machine.lines("includes")[-1] == "/a/include:/b/include"
    assert machine.lines("cmake")[-1].startswith("/a:/b --build --preset gpu")


def test_a_failed_build_shows_its_end(machine: Machine) -> None:
    machine.tool("cmake", "echo an error; exit 3")
    status, output = machine.run("test")
    assert status == 1
    assert "an error\n" in output
    assert "the build failed" in output


def test_all_phases_pass_and_mps_is_started_for_ranks_alone(machine: Machine) -> None:
    report = (
        'echo "$HEADRACE_GPU_RANKS ${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-none}'
        ' $CUDA_DEVICE_MAX_CONNECTIONS ${CUDA_MPS_PIPE_DIRECTORY:-none}" >>environment\n'
    )
    for program in PROGRAMS:
        machine.program(program, report + ONE_TEST_PASSES)
    status, output = machine.run("test")
    assert (status, output.splitlines()[-1]) == (0, "gpu-test: all phases passed"), output
    assert phase(output, "transport").startswith(
        "gpu-test: transport (mps, ranks: 1 2 4 8): passed, 4 tests, "
    )
    runs = [line.split() for line in machine.lines("environment")]
    in_mps = [run for run in runs if run[3] != "none"]
    shares = [["1", "100", "32"], ["2", "50", "32"], ["4", "25", "16"], ["8", "12", "8"]]
    assert [run[:3] for run in in_mps] == shares * 2
    assert len({run[3] for run in in_mps}) == len(in_mps), "a daemon of its own each"
    assert all(run[1] == "none" and run[2] == "32" for run in runs if run[3] == "none")
    assert runs[-1] == ["4", "none", "32", "none"], "what kills ranks is last, without MPS"
    assert machine.lines("mps").count("quit") == len(in_mps) == len(machine.lines("daemons"))
    assert not machine.is_left(machine.lines("daemons"))
    assert not any(Path(run[3]).exists() for run in in_mps)
    assert "MPS did not end" not in "".join(machine.lines("out/gpu/transport.log"))


def test_every_phase_runs_whatever_the_others_came_to(machine: Machine) -> None:
    machine.program("kernel", "echo '[  FAILED  ] Sum.is_right'; exit 1")
    machine.program(
        "support", "echo 'a_test.cc:1: Skipped'; echo why; echo '[  PASSED  ] 0 tests.'"
    )
    machine.program("collective", f"{ONE_TEST_PASSES}; echo '[  SKIPPED ] 2 tests, listed below:'")
    (machine.root / "build/gpu/tests/transport_gpu_test").unlink()
    (machine.root / "bin/compute-sanitizer").unlink()
    status, output = machine.run("test")
    assert status == 1
    assert "FAILED: 1 ranks ended with status 1" in phase(output, "kernel")
    assert "[  FAILED  ] Sum.is_right\n" in output
    assert "FAILED: there is no program transport_gpu_test" in phase(output, "transport")
    assert "FAILED: no test ran" in phase(output, "recorder")
    assert "a_test.cc:1: Skipped\nwhy\n" in output
    assert "skipped: compute-sanitizer is not on the PATH" in phase(output, "memcheck")
    assert "passed, 4 tests, 8 skipped" in phase(output, "collective")
    failed = "kernel transport peers_memcheck recorder"
    assert output.splitlines()[-1] == f"gpu-test: failed: {failed}; see out/gpu/"
    assert "[  FAILED  ] Sum.is_right" in machine.lines("out/gpu/kernel.log")


def test_what_a_sanitizer_finds_fails(machine: Machine) -> None:
    machine.tool("compute-sanitizer", "echo '========= ERROR SUMMARY: 1 error'; exit 86")
    status, output = machine.run("test", "racecheck")
    assert status == 1
    assert "FAILED: compute-sanitizer found errors" in phase(output, "racecheck")
    assert "========= ERROR SUMMARY: 1 error\n" in output


def test_a_program_that_hangs_is_ended_with_all_that_it_started(machine: Machine) -> None:
    machine.program("transport", "trap '' TERM; sleep 99 & echo $! >>pids; echo $$ >>pids; wait")
    began = time.monotonic()
    status, output = machine.run("test", "transport", GPU_SECONDS="1")
    assert status == 1
    assert "FAILED: 1 ranks were not done in 1 s" in phase(output, "transport")
    assert time.monotonic() - began < 50
    assert not machine.is_left(machine.lines("pids") + machine.lines("daemons"))
    assert machine.lines("mps")[-1] == "quit"


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(machine: Machine, by: signal.Signals) -> None:
    machine.program("transport", "echo $$ >>pids; sleep 99")
    process = machine.start("test", "transport")
    deadline = time.monotonic() + 30
    while not machine.lines("pids") and time.monotonic() < deadline:
        time.sleep(0.05)
    began = time.monotonic()
    os.kill(process.pid, by)
    process.communicate(timeout=60)
    assert process.returncode == 128 + by
    assert time.monotonic() - began < 50
    assert not machine.is_left(machine.lines("pids") + machine.lines("daemons"))
    assert machine.lines("mps")[-1] == "quit"


def test_an_mps_daemon_that_does_not_heed_quit_is_ended_by_its_number(machine: Machine) -> None:
    machine.tool(
        "nvidia-cuda-mps-control", DAEMON.replace("= quit", "= never").replace("kill", "true")
    )
    status, output = machine.run("test", "transport", MPS_SECONDS="2")
    assert status == 0, output
    assert "MPS did not end in 2 s: SIGTERM" in "\n".join(machine.lines("out/gpu/transport.log"))
    assert not machine.is_left(machine.lines("daemons"))


def test_an_mps_daemon_that_does_not_start_fails_the_phase_with_its_words(
    machine: Machine,
) -> None:
    machine.tool("nvidia-cuda-mps-control", "echo no rights; exit 1")
    status, output = machine.run("test", "transport")
    assert status == 1
    assert "FAILED: nvidia-cuda-mps-control -d ended with 1: no rights" in phase(
        output, "transport"
    )


def test_an_unknown_phase_is_named(machine: Machine) -> None:
    status, output = machine.run("test", "kernels")
    assert status == 1
    assert output.startswith("gpu-test: there is no phase kernels; there are: runtime kernel")


def test_a_measurement_is_shown_and_its_lines_are_kept(machine: Machine) -> None:
    file = machine.root / "build/gpu/bench/gpu_bench"
    machine._write(
        file, 'echo "a table of $1"; while [ "$1" != --out ]; do shift; done; echo {} >>$2'
    )
    status, output = machine.run("bench")
    assert status == 0, output
    assert "a table of overlap\n" in output
    assert machine.lines("out/gpu/bench.jsonl") == ["{}"] * 5, "landing runs with 2, 4 and 8 ranks"
