"""However the demo ends early, it says why, in time, and leaves no process."""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TINY = ["--cap", "128", "--hidden", "32", "--layers", "2", "--intermediate", "48"]
ENDLESS = ["--warm-up-steps", "0", "--steps", "100000"]
SET_UP_LIMIT = 200.0  # seconds, on a busy machine
END_LIMIT = 60.0


def processes_of(*words: str) -> list[int]:
    """Those with all of these in their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (folder / "cmdline").read_bytes().decode(errors="replace")
            if all(word in line for word in words):
                found.append(int(folder.name))
    return found


@contextmanager
def demo_that_trains(out: Path) -> Iterator[subprocess.Popen]:
    """A demo whose arms have all taken a few steps; it would go on for ever."""
    faulthandler.dump_traceback_later(SET_UP_LIMIT + 2 * END_LIMIT, exit=True)
    data = out / "texts.jsonl"
    data.write_text("".join(json.dumps({"text": "a = b\n" * size}) + "\n" for size in range(1, 60)))
    command = [sys.executable, str(EXAMPLES / "demo.py"), *TINY, *ENDLESS]
    command += ["--data", str(data), "--out", str(out)]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    last_in_a_round = out / "demo" / "reference.metrics.jsonl"
    deadline = time.monotonic() + SET_UP_LIMIT
    try:
        while not last_in_a_round.exists() or last_in_a_round.read_text().count("\n") < 3:
            assert demo.poll() is None, demo.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield demo
        deadline = time.monotonic() + END_LIMIT
        while left := processes_of(str(out)):
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.1)
    finally:
        demo.kill()
        for pid in processes_of(str(out)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_rank_that_dies_ends_the_demo_with_its_arms_name(tmp_path: Path) -> None:
    with demo_that_trains(tmp_path) as demo:
        ranks = processes_of(str(tmp_path), "lockstep.metrics.jsonl", "sft.py")
        launcher = processes_of(str(tmp_path), "lockstep.metrics.jsonl", "torch.distributed.run")
        assert len(launcher) == 1
        rank = next(pid for pid in ranks if pid not in launcher)
        os.kill(rank, signal.SIGKILL)
        _, said = demo.communicate(timeout=END_LIMIT)
        assert demo.returncode == 1
        assert said.startswith("demo: lockstep ended with 1, see ")


def test_ctrl_c_takes_the_arms_along(tmp_path: Path) -> None:
    with demo_that_trains(tmp_path) as demo:
        demo.send_signal(signal.SIGINT)
        _, said = demo.communicate(timeout=END_LIMIT)
        assert demo.returncode == 128 + signal.SIGINT
        assert "Traceback" not in said
