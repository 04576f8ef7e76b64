"""Whether torch alone, without headrace, corrupts its heap where a gloo group has two workers.

A program of its own: `python gloo_race.py [--workers 1|2] [--seconds S]`. Two ranks keep several
functional all-gathers, which is what DTensor.full_tensor calls, in flight at once. Prints how each
rank ended; the exit status is 1 where one was killed by a signal. See gloo.py.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

_in_flight = 16
_rounds_a_look = 100  # at the clock
_time_out = timedelta(seconds=30)  # of a rank whose peer has died


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, choices=(1, 2), default=2)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        gather(options.rank, options.store, options.workers, options.seconds)
    limit = options.seconds + 3 * _time_out.total_seconds()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *sys.argv[1:], "--store", f"{folder}/store"]
        ranks = [
            subprocess.Popen([*command, "--rank", str(rank)], stderr=subprocess.PIPE, text=True)
            for rank in range(2)
        ]
        try:
            errors = [process.communicate(timeout=limit)[1] for process in ranks]
        finally:
            for process in ranks:
                process.kill()
    died = False
    for rank, process in enumerate(ranks):
        killed = process.returncode < 0  # the other one's error is that its peer is gone
        died = died or killed
        last = errors[rank].splitlines()[-1:] if killed else []
        print(f"rank {rank}: exit code {process.returncode}", *last)
    return int(died)


def gather(rank: int, store: str, workers: int, seconds: float) -> None:
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if workers == 1:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from support.gloo import use_one_worker

        use_one_worker()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=_time_out
    )
    begin, gathers = time.monotonic(), 0
    functional = torch.ops._c10d_functional
    block = torch.ones(8)
    over = torch.zeros(1)
    while not over.item():
        for _ in range(_rounds_a_look):
            outputs = [
                functional.all_gather_into_tensor(block, 2, dist.group.WORLD.group_name)
                for _ in range(_in_flight)
            ]
            for output in outputs:
                functional.wait_tensor(output)
            gathers += _in_flight
        over[0] = time.monotonic() - begin > seconds
        dist.all_reduce(over)
    print(f"rank {rank}: {gathers} all-gathers", flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
