#!/usr/bin/env bash
# Builds and runs what needs an NVIDIA GPU, with what the system has: no .venv, no pip, no apt (docs/gpu.md).
#
#   scripts/gpu.sh test [PHASE...]     tests, in the phases below
#   scripts/gpu.sh bench [PHASE...]    measurements; out/gpu/bench.jsonl
#
#   CMAKE_PREFIX_PATH   libraries that the system lacks; build/deps/usr where scripts/fetch_deps.sh made it
#   GPU_SECONDS         another time limit for each run of a program
#   BUILD_SECONDS       another one for the build (540); JOBS, parallel compile jobs
#
# Every phase runs, whatever the others came to. Its output is out/gpu/<phase>.log; the exit status is 1
# where one failed. Leaves clocks, compute mode and other people's processes alone.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/libraries.sh
. scripts/mps.sh

# Phase | how it runs | numbers of ranks, a run each | seconds a run | program and arguments.
# How: `plain`; `mps`, ranks as processes that share the GPU; a tool of compute-sanitizer, on small sizes. A
# process killed at work can take MPS and its other clients along, so tests of that run without, and last.
faults='*Killed*:*Stopped*:*Stalled*'
test_phases=(
  'runtime      | plain     | 1       | 30 | runtime_gpu_test'
  'kernel       | plain     | 1       | 90 | kernel_gpu_test'
  "transport    | mps       | 1 2 4 8 | 120 | transport_gpu_test --gtest_filter=-$faults:*Activity*"
  "collective   | mps       | 1 2 4 8 | 150 | collective_gpu_test --gtest_filter=-$faults:*Activity*"
  'memcheck     | memcheck  | 1       | 90 | kernel_gpu_test'
  'racecheck    | racecheck | 1       | 90 | kernel_gpu_test'
  'peers_memcheck | memcheck  | 2       | 90 | transport_gpu_test --gtest_filter=*Conformance*'
  'recorder     | plain     | 1       | 30 | support_gpu_test'
  'activity     | plain     | 2       | 60 | collective_gpu_test --gtest_filter=*Activity*'
  "faults       | plain     | 4       | 90 | collective_gpu_test --gtest_filter=$faults"
)
bench_phases=(
  'kernels      | plain     | 1       | 120 | gpu_bench kernels'
  'overlap      | plain     | 1       | 180 | gpu_bench overlap'
  'landing      | mps       | 2 4 8   | 180 | gpu_bench landing'
)

what=${1:-}
shift || true
wanted=" $* "
logs=out/gpu
grace=5 # seconds between SIGTERM and SIGKILL
build_seconds=${BUILD_SECONDS:-540}

say() { printf 'gpu-%s: %s\n' "$what" "$*"; }
fail() {
  printf 'gpu-%s: %s\n' "$what" "$*" >&2
  exit 1
}

for folder in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer /usr/local/nvidia/bin; do
  if [ -d "$folder" ]; then PATH=$PATH:$folder; fi
done

require_machine() {
  local tool gpus missing
  command -v nvidia-smi >/dev/null || fail 'no NVIDIA GPU here: nvidia-smi is not on the PATH'
  gpus=$(timeout 60 nvidia-smi -L 2>&1) && [[ $gpus == *'GPU 0'* ]] ||
    fail "no NVIDIA GPU here: nvidia-smi -L says: $(head -n 1 <<<"$gpus")"
  for tool in nvcc g++ cmake ninja; do
    command -v "$tool" >/dev/null || fail "cannot build here: $tool is not on the PATH"
  done
  if [ -z "${CMAKE_PREFIX_PATH:-}" ] && [ -d build/deps/usr ]; then
    export CMAKE_PREFIX_PATH=$PWD/build/deps/usr
  fi
  # In CMAKE_PREFIX_PATH as in the compiler's own folders.
  missing=$(
    export CPLUS_INCLUDE_PATH
    CPLUS_INCLUDE_PATH=$(tr ';:' '\n' <<<"${CMAKE_PREFIX_PATH:-}" | sed -n 's|..*|&/include|p' | paste -sd :)
    missing_libraries | paste -sd ' '
  )
  [ -z "$missing" ] || fail "missing: $missing. Install them; or, where there is no network, carry the folder
  that scripts/fetch_deps.sh makes elsewhere, and set CMAKE_PREFIX_PATH=FOLDER/usr"
  say "$(head -n 1 <<<"$gpus")"
}

# Folders that NVIDIA's Python packages brought, where torch is: cuBLAS, and CUPTI where the toolkit lacks it.
packages=()
find_packages() {
  local folder
  while read -r folder; do
    if [ -n "$folder" ]; then packages+=("$folder"); fi
  done < <(
    "${PYTHON:-python3}" -c 'import glob, nvidia
for path in nvidia.__path__:
    print(*sorted(f.removesuffix("/lib") for f in glob.glob(path + "/*/lib")), sep="\n")' 2>/dev/null
  )
  for folder in "${packages[@]}"; do
    if compgen -G "$folder/lib/libcublas.so.*" >/dev/null; then
      bench_libraries+=${bench_libraries:+:}$folder/lib
    fi
  done
}

build() {
  local began=$SECONDS
  {
    timeout 120 cmake --preset gpu --log-level=WARNING -DHEADRACE_CUDA_PACKAGES="$(IFS=';' && echo "${packages[*]}")" &&
      timeout --kill-after="$grace" "$build_seconds" cmake --build --preset gpu -j "${JOBS:-$(nproc)}"
  } >"$logs/build.log" 2>&1 || {
    tail -n 60 "$logs/build.log" >&2
    fail "the build failed; all of its output is in $logs/build.log"
  }
  say "built, $((SECONDS - began)) s"
}

# The process group that runs now; it is ended with the script.
running=
end_running() {
  [ -n "$running" ] || return 0
  kill -TERM "$running" 2>/dev/null || true # timeout passes it on, and kills what does not heed it
  wait "$running" 2>/dev/null || true
  kill -KILL -- "-$running" 2>/dev/null || true
  running=
}
clean_up() {
  trap - EXIT
  end_running
  stop_mps
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# `limited SECONDS LOG COMMAND...`: nothing that the command started outlives it.
limited() {
  local seconds=$1 log=$2 status=0
  shift 2
  timeout --kill-after="$grace" "$seconds" "$@" </dev/null >>"$log" 2>&1 &
  running=$!
  wait "$running" || status=$?
  kill -KILL -- "-$running" 2>/dev/null || true
  running=
  return "$status"
}

# How many tests GoogleTest says have PASSED or were SKIPPED, in the last run of the log.
last_count() {
  tail -n "+$before" "$log" | awk -v word="$1" '$1 == "[" && $2 == word && $4 ~ /^[0-9]+$/ {n = $4} END {print n + 0}'
}

# Adds to `verdict`, and to `tests` and `skipped` where the program is a test.
run_ranks() {
  local how=$1 ranks=$2 seconds=$3 log=$4 status=0 connections=32 settings=() before found=
  shift 4
  local call=("$@")
  case $how in
    plain) ;;
    mps)
      if ! start_mps; then
        verdict="FAILED: $mps_error"
        return
      fi
      connections=$(mps_connections "$ranks")
      settings=(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$((100 / ranks)))
      ;;
    *)
      call=(compute-sanitizer --tool "$how" --target-processes all --error-exitcode 86)
      # Tests make calls fail on purpose.
      if [ "$how" = memcheck ]; then call+=(--report-api-errors no); fi
      call+=("$@")
      settings=(HEADRACE_TEST_SMALL=1)
      ;;
  esac
  echo "== $ranks ranks, $how: ${call[*]}" >>"$log"
  before=$(wc -l <"$log")
  limited "$seconds" "$log" env "${settings[@]}" CUDA_DEVICE_MAX_CONNECTIONS="$connections" \
    HEADRACE_GPU_RANKS="$ranks" LD_LIBRARY_PATH="${libraries_of_run:-}" "${call[@]}" || status=$?
  stop_mps 2>>"$log"
  case $status in
    0) ;;
    124 | 137) found="$ranks ranks were not done in $seconds s" ;;
    86) found="compute-sanitizer found errors with $ranks ranks" ;;
    *) found="$ranks ranks ended with status $status" ;;
  esac
  if [ "$what" = test ]; then
    local passed
    passed=$(last_count PASSED)
    tests=$((tests + passed))
    skipped=$((skipped + $(last_count SKIPPED)))
    if [ -z "$found" ] && [ "$passed" -eq 0 ]; then found="no test ran with $ranks ranks"; fi
  fi
  if [ -n "$found" ]; then
    if [ "$verdict" = passed ]; then verdict="FAILED: $found"; else verdict+="; $found"; fi
  fi
}

# One phase, one line.
run_phase() {
  local name=$1 how=$2 ranks_list=$3 seconds=${GPU_SECONDS:-$4} program=$5 ranks path
  shift 5
  local log=$logs/$name.log began=$SECONDS
  tests=0 skipped=0 verdict=passed
  : >"$log"
  path=$(find build/gpu/tests build/gpu/bench -maxdepth 1 -name "$program" -type f 2>/dev/null) || true
  if [ -z "$path" ]; then
    verdict="FAILED: there is no program $program"
  elif [ "$how" != plain ] && [ "$how" != mps ] && ! command -v compute-sanitizer >/dev/null; then
    verdict='skipped: compute-sanitizer is not on the PATH'
  else
    for ranks in $ranks_list; do
      run_ranks "$how" "$ranks" "$seconds" "$log" "$path" "$@"
      [[ $verdict != *'not done in'* ]] || break # the others would hang as long
    done
  fi
  case $verdict in
    FAILED*)
      grep -E -A4 '(Failure|Skipped)$' "$log" | head -n 25 || true
      grep -E '^\[  FAILED  \] .*[^)]$|ERROR SUMMARY' "$log" | sort -u | head -n 20 || tail -n 12 "$log"
      failed+=("$name")
      ;;
    *) if [ "$what" = bench ]; then cat "$log"; fi ;;
  esac
  if [ "$tests" -gt 0 ]; then verdict+=", $tests tests"; fi
  if [ "$skipped" -gt 0 ]; then verdict+=", $skipped skipped"; fi
  say "$name ($how, ranks: $ranks_list): $verdict, $((SECONDS - began)) s"
}

case $what in
  test) phases=("${test_phases[@]}") ;;
  bench) phases=("${bench_phases[@]}") ;;
  *)
    what='?'
    fail 'usage: scripts/gpu.sh test|bench [PHASE...]'
    ;;
esac
names=$(printf '%s\n' "${phases[@]}" | awk '{print $1}' | paste -sd ' ')
for name in $wanted; do
  [[ " $names " == *" $name "* ]] || fail "there is no phase $name; there are: $names"
done

mkdir -p "$logs"
require_machine
bench_libraries=
find_packages
build
libraries_of_run=${LD_LIBRARY_PATH:-}
if [ "$what" = bench ]; then
  : >"$logs/bench.jsonl"
  libraries_of_run+=${libraries_of_run:+:}$bench_libraries
fi
failed=()
for phase in "${phases[@]}"; do
  IFS='|' read -r name how ranks seconds command <<<"$phase"
  name=${name// /}
  if [ -n "${wanted// /}" ] && [[ $wanted != *" $name "* ]]; then continue; fi
  read -ra command <<<"$command"
  if [ "$what" = bench ]; then command+=(--out "$logs/bench.jsonl"); fi
  read -r ranks <<<"$ranks"
  run_phase "$name" "${how// /}" "$ranks" "${seconds// /}" "${command[@]}"
done
[ "${#failed[@]}" -eq 0 ] || fail "failed: ${failed[*]}; see $logs/"
say 'all phases passed'
