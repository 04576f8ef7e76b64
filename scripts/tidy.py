#!/usr/bin/env python3
"""clang-tidy over the engine, the bindings and the program; headers through their includers.

A file is checked again only when it, a header of the repository, its compile command,
.clang-tidy or clang-tidy itself has changed; what passed is remembered under build/lint.

usage: tidy.py [FILE...]      files to check; all sources outside tests/ where none is given
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "lint"
CHECKED = ("engine/", "cli/", "python/bindings/", "bench/", "replay/")
SECONDS_A_FILE = 300


def output_of(*command: str) -> str:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_A_FILE, check=True
    ).stdout


def configure() -> None:
    """A build tree that is never built: only its compile commands are read."""
    output_of(
        *("cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "-DHEADRACE_PYTHON=ON"),
        *(f"-DPython_EXECUTABLE={sys.executable}", "-DHEADRACE_TESTS=OFF"),
    )


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def main() -> int:
    configure()
    commands = {
        Path(entry["directory"], entry["file"]).resolve(): entry["command"]
        for entry in json.loads((BUILD / "compile_commands.json").read_text())
        if not entry["file"].endswith(".cu")  # nvcc's options mean nothing to clang
    }
    wanted = {Path(name).resolve() for name in sys.argv[1:]}
    files = sorted(
        file
        for file in commands
        if file.is_relative_to(ROOT)
        and (file in wanted if wanted else str(file.relative_to(ROOT)).startswith(CHECKED))
    )
    if not files:
        print("tidy: no such source in the build", file=sys.stderr)
        return 2

    headers = (h for top in CHECKED for h in sorted((ROOT / top).rglob("*.h")))
    common = digest(
        (ROOT / ".clang-tidy").read_bytes(),
        output_of("clang-tidy", "--version").encode(),
        *(header.read_bytes() for header in headers),
    )

    def check(file: Path) -> str:
        """What clang-tidy found; empty where the file is clean."""
        key = digest(common.encode(), commands[file].encode(), file.read_bytes())
        passed = BUILD / "passed" / key
        if passed.exists():
            return ""
        command = ["clang-tidy", "--quiet", "-p", str(BUILD), str(file)]
        result = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_A_FILE, check=False
        )
        if result.returncode != 0:
            return result.stdout or f"{shlex.join(command)}: {result.stderr}"
        passed.parent.mkdir(parents=True, exist_ok=True)
        passed.touch()
        return ""

    with ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count() or 1)) as pool:
        found = [text for text in pool.map(check, files) if text]
    for text in found:
        print(text)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
