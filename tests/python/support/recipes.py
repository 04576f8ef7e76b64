"""The Python blocks of a page of documentation as one script, and its run by torchrun."""

import os
import re
import subprocess
import sys
from pathlib import Path

docs = Path(__file__).resolve().parents[3] / "docs"
_limit_seconds = 90
_block = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def script_of(page: str) -> str:
    """The page's blocks, one after another."""
    blocks = _block.findall((docs / page).read_text())
    assert blocks, f"{page} has no Python blocks"
    return "\n".join(blocks)


def run(script: str, folder: Path, ranks: int = 0) -> str:
    """What the script prints; as one plain process where `ranks` is 0, else by torchrun."""
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable]
    if ranks:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    beside = os.pathsep.join(
        [str(Path(__file__).parents[1]), *filter(None, [os.getenv("PYTHONPATH")])]
    )
    done = subprocess.run(
        [*command, str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": beside, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=_limit_seconds,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout
