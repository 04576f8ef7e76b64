#!/usr/bin/env bash
# Runs every benchmark and leaves one JSON object a case in out/bench.jsonl.
#
#   RANKS="2 4"   world sizes        MIB=64   size of the group in MiB
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

mkdir -p out
: >out/bench.jsonl
for operation in gather push; do
  for ranks in ${RANKS:-2 4}; do
    headrace bench "$operation" --ranks "$ranks" --mib "${MIB:-64}" --json | tee -a out/bench.jsonl
  done
done
