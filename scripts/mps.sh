# Sourced: an NVIDIA MPS control daemon that belongs to the script alone. Processes that share a GPU without
# it take turns, a time slice each. Who starts it stops it, also on failure.
mps_folder=                    # empty: none runs
mps_error=                     # why start_mps failed
mps_seconds=${MPS_SECONDS:-20} # longest wait for the daemon, in each step

mps_say() { echo "$1" | timeout --kill-after=1 "$mps_seconds" nvidia-cuda-mps-control 2>/dev/null; }

start_mps() {
  if ! command -v nvidia-cuda-mps-control >/dev/null; then
    mps_error='nvidia-cuda-mps-control is not on the PATH'
    return 1
  fi
  mps_folder=$(mktemp -d /tmp/headrace-mps.XXXXXX) # short: it becomes the address of a socket
  mkdir "$mps_folder/pipe" "$mps_folder/log"
  export CUDA_MPS_PIPE_DIRECTORY=$mps_folder/pipe CUDA_MPS_LOG_DIRECTORY=$mps_folder/log
  # The daemon must not hold this script's output open.
  local status=0
  timeout --kill-after=1 "$mps_seconds" nvidia-cuda-mps-control -d \
    </dev/null >"$mps_folder/start" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    mps_error="nvidia-cuda-mps-control -d ended with $status: $(tail -n 1 "$mps_folder/start")"
    stop_mps
    return 1
  fi
}

# Of the daemon and its servers, those that still run; a zombie, which nobody waits for, does not.
mps_left() {
  local pid state
  for pid in $(cat "$mps_folder/processes"); do
    state=$(awk '$1 == "State:" {print $2}' "/proc/$pid/status" 2>/dev/null) || true
    if [ -n "$state" ] && [ "$state" != Z ]; then echo "$pid"; fi
  done
}

stop_mps() {
  [ -n "$mps_folder" ] || return 0
  {
    cat "$mps_folder"/pipe/*.pid 2>/dev/null || true
    mps_say get_server_list || true
  } | grep -E '^[0-9]+$' >"$mps_folder/processes" || true
  mps_say quit >/dev/null || true
  local signal deadline
  for signal in TERM KILL; do
    deadline=$((SECONDS + mps_seconds))
    while [ -n "$(mps_left)" ] && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.1; done
    if [ -n "$(mps_left)" ]; then
      echo "MPS did not end in $mps_seconds s: SIG$signal" >&2
      # shellcheck disable=SC2046  # one word a process
      kill -s "$signal" $(mps_left) 2>/dev/null || true
    fi
  done
  rm -rf "$mps_folder"
  mps_folder=
  unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

# Hardware queues a client: they are shared out, and with more of them fewer clients start.
mps_connections() {
  if [ "$1" -le 3 ]; then echo 32; elif [ "$1" -le 4 ]; then echo 16; else echo 8; fi
}
