"""Runs functions in pairs of processes that end as an interpreter ends, atexit and traceback
included.

A program of its own: `python exits.py FOLDER MODULE FUNCTION...` imports torch once, then forks two
ranks for each function of the module, called as function(rank, store). FOLDER/FUNCTION.RANK holds
what each printed, FOLDER/FUNCTION.RANK.code its exit status.
"""

import importlib
import os
import sys
import time
from pathlib import Path

_limit_seconds = 40


def main() -> None:
    folder, module_name, *names = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parent.parent))
    importlib.import_module("torch._dynamo")
    module = importlib.import_module(module_name)
    for name in names:
        children = {}
        for rank in range(2):
            child = os.fork()
            if child == 0:
                output = os.open(f"{folder}/{name}.{rank}", os.O_WRONLY | os.O_CREAT)
                os.dup2(output, 1)
                os.dup2(output, 2)
                getattr(module, name)(rank, f"{folder}/{name}.store")
                return  # and the interpreter ends
            children[rank] = child
        limit = time.monotonic() + _limit_seconds
        for rank, child in children.items():
            Path(f"{folder}/{name}.{rank}.code").write_text(str(_wait(child, limit)))


def _wait(child: int, limit: float) -> int:
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
