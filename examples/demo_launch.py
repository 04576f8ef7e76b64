"""Scripts of this folder as processes, each with its log; ended for sure."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
LAUNCHER_GRACE = 40.0  # seconds; torchrun gives its ranks 30
LAUNCHER_LOOKS_EVERY = 1.0  # seconds; torchrun's own 0.1 would take time from whoever is measured


class Failure(Exception):
    """Something the user should read without a traceback."""


@dataclass(frozen=True)
class Launched:
    name: str
    process: subprocess.Popen
    log: Path

    def ended(self) -> bool:
        """Whether it has ended well; Failure where it has ended otherwise."""
        code = self.process.poll()
        if code:
            raise Failure(
                f"{self.name} ended with {code}, see {self.log}:\n{_last_words(self.log)}"
            )
        return code == 0


def launch(name: str, script: str, arguments: Sequence[str], ranks: int, log: Path) -> Launched:
    """Starts a script, by torchrun where `ranks` is not 0."""
    command = [sys.executable]
    if ranks:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command.append(f"--monitor-interval={LAUNCHER_LOOKS_EVERY}")
    command += [str(EXAMPLES / script), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return Launched(name, process, log)


def run_to_end(script: str, arguments: Sequence[str], ranks: int, limit: float, log: Path) -> None:
    """Launches a script and waits until it has ended, at most `limit` seconds."""
    launched = launch(script, script, arguments, ranks, log)
    try:
        launched.process.wait(limit)
        launched.ended()
    except subprocess.TimeoutExpired:
        raise Failure(f"{script} was ended after {limit:.0f} s; its output: {log}") from None
    finally:
        end([launched])


def end(everything: Sequence[Launched]) -> None:
    """Ends launchers; they end their ranks when told to, so they get time for that first."""
    running = [one.process for one in everything if one.process.poll() is None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + LAUNCHER_GRACE
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _last_words(log: Path, lines: int = 30) -> str:
    """What the ranks said last before the launcher reported their end."""
    said = log.read_text(errors="replace").splitlines()
    launcher = [n for n, line in enumerate(said) if "torch/distributed/elastic" in line]
    end = launcher[0] if launcher else len(said)
    return "\n".join(said[max(0, end - lines) : end])
