#!/usr/bin/env bash
# Formatting, static analysis and the layer order; `--fix` formats instead and stops there.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

mapfile -t cxx < <(find engine cli python/bindings tests bench replay -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null | sort)
mapfile -t py < <(find python tests examples scripts bench -name '*.py*' ! -name '*.pyc' 2>/dev/null | sort)

if [ "${1:-}" = --fix ]; then
  clang-format -i "${cxx[@]}"
  ruff check --quiet --fix "${py[@]}" || true # what it cannot fix, `make lint` reports
  ruff format "${py[@]}"
  exit
fi

echo 'lint: format'
clang-format --dry-run -Werror "${cxx[@]}"
ruff format --check --quiet "${py[@]}" || {
  echo 'lint: files above are not formatted; run: make format' >&2
  exit 1
}
echo 'lint: ruff'
ruff check --quiet "${py[@]}"
echo 'lint: layers'
.venv/bin/python scripts/check_layers.py
echo 'lint: clang-tidy'
.venv/bin/python scripts/tidy.py
