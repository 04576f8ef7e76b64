#!/usr/bin/env bash
# Makes this checkout ready: system packages, .venv, Python packages, the C++ build, the package itself.
#
#   scripts/setup.sh [build|dev|bench]
#
#   build   everything that `make build` and `make demo` need (the default)
#   dev     build, and what `make test` and `make lint` need
#   bench   build, and Open MPI as a peer of the benchmarks where it may be installed
#
# Does only what is missing, so a second run takes about a second. PYTHON picks the interpreter (3.11 or
# newer). System packages are installed by root, or through sudo where it asks for no password; otherwise
# the one line to run is printed and the exit status is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/libraries.sh

target=${1:-build}
python=${PYTHON:-python3}
stamps=.venv/.stamps

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

has_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | awk 'NR == 1 {print $3}')
  [ -n "$version" ] && printf '3.25\n%s\n' "$version" | sort -V -C
}
python_has() { "$python" -c "$1" >/dev/null 2>&1; }

# Debian packages whose content this machine lacks, one a line.
missing_packages() {
  command -v g++ >/dev/null || echo g++
  has_cmake || echo cmake
  command -v ninja >/dev/null || echo ninja-build
  missing_libraries
  python_has 'import venv, ensurepip' || echo python3-venv
  python_has 'import os, sysconfig as s
assert os.path.exists(os.path.join(s.get_path("include"), "Python.h"))' || echo python3-dev
}

# Installs Debian packages; 1 where this user may not, 2 where the installation failed.
install_packages() {
  command -v apt-get >/dev/null || return 1
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || return 1
    as_root=(sudo -n)
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
  say "installing $*"
  "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$@" || return 2
}

system_packages() {
  local missing status=0
  missing=$(missing_packages | tr '\n' ' ')
  [ -z "$missing" ] && return
  # shellcheck disable=SC2086  # one word a package
  install_packages $missing || status=$?
  [ "$status" -eq 2 ] && fail "apt-get could not install: $missing"
  if [ "$status" -eq 1 ]; then
    fail "packages are missing and this user may not install them. Run this line, then try again:

  sudo apt-get update && sudo apt-get install -y $missing"
  fi
  missing=$(missing_packages | tr '\n' ' ')
  [ -z "$missing" ] || fail "still missing after the installation: $missing(cmake must be 3.25 or newer;
  python3-venv and python3-dev must belong to $(command -v "$python" || echo "$python"))"
}

# `fresh NAME HASH`: does the stamp hold that hash? `stamp NAME HASH` writes it.
fresh() { [ "$(cat "$stamps/$1" 2>/dev/null)" = "$2" ]; }
stamp() { mkdir -p "$stamps" && printf '%s\n' "$2" >"$stamps/$1"; }
hash_of() { sha256sum | cut -d ' ' -f 1; }

virtual_environment() {
  .venv/bin/python -c 'import pip' 2>/dev/null && return
  say "making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
}

requirements() {
  local file=$1 hash
  hash=$({ .venv/bin/python --version; cat requirements.txt "$file"; } | hash_of)
  fresh "$file" "$hash" && return
  say "installing the Python packages of $file"
  # requirements.txt is always given, so that nothing in the other file can move its versions.
  .venv/bin/python -m pip install --disable-pip-version-check --quiet \
    -r requirements.txt -r "$file"
  stamp "$file" "$hash"
}

package() {
  local hash
  hash=$({
    .venv/bin/python --version
    find CMakeLists.txt pyproject.toml requirements.txt cmake engine bench replay python cli \
      -type f ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  } | hash_of)
  [ -x .venv/bin/headrace ] && fresh package "$hash" && return
  say "building and installing the package (minutes the first time)"
  # In the tree of the release preset, which then finds the engine compiled; this machine has fmt to link.
  CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} .venv/bin/python -m pip install \
    --disable-pip-version-check --quiet --no-build-isolation --no-deps --force-reinstall \
    -C build-dir=build/release -C 'build.targets=_engine;headrace' \
    -C cmake.define.HEADRACE_TESTS=ON -C cmake.define.HEADRACE_BUNDLE_FMT=OFF .
  stamp package "$hash"
  say "ready: .venv/bin/headrace"
}

open_mpi() {
  command -v mpicxx >/dev/null && command -v mpirun >/dev/null && return
  install_packages libopenmpi-dev openmpi-bin ||
    say "Open MPI is absent: the benchmarks leave that peer out (libopenmpi-dev, openmpi-bin)"
}

command -v "$python" >/dev/null || fail "no '$python' here: install python3, or set PYTHON=/path/to/python3"
python_has 'import sys; assert sys.version_info >= (3, 11)' ||
  fail "$python is $("$python" --version 2>&1); Python 3.11 or newer is needed: set PYTHON=/path/to/python3"

case $target in
  build | dev | bench) ;;
  *) fail "unknown target '$target': build, dev or bench" ;;
esac
system_packages
virtual_environment
requirements requirements.txt
if [ "$target" = dev ]; then requirements requirements-dev.txt; fi
if [ "$target" = bench ]; then open_mpi; fi
package
