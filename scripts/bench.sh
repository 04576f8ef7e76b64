#!/usr/bin/env bash
# Runs every benchmark and leaves one JSON object a case in out/bench.jsonl.
#
#   RANKS="2 4"          world sizes        MIB=64   size of an on-demand group in MiB
#   SHARD_MIB="32 128"   sizes of a rank's shard in lockstep, in MiB
#
# The largest case is 4 ranks of 128 MiB: allow it 8 GiB of memory and a few minutes beside gloo.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"

world_sizes=${RANKS:-2 4}
mib=${MIB:-64}
shard_sizes=${SHARD_MIB:-32 128}
mkdir -p out
: >out/bench.jsonl
keep() { tee -a out/bench.jsonl; }

for operation in gather push; do
  for ranks in $world_sizes; do
    headrace bench "$operation" --ranks "$ranks" --mib "$mib" --json | keep
  done
done

for ranks in $world_sizes; do
  for shard in $shard_sizes; do
    headrace bench all-gather --ranks "$ranks" --mib "$shard" --json | keep
  done
  headrace bench reduce-scatter --ranks "$ranks" --mib "${shard_sizes%% *}" --json | keep
done
headrace bench plan --json | keep

# The balancer, beside verl's own Karmarkar-Karp in Python where its wheel can be had.
headrace bench balance --json | tee out/balance.jsonl | keep
verl=(build/peers/verl-*.whl)
if [ ! -e "${verl[0]}" ]; then
  timeout 120 python -m pip download --disable-pip-version-check --quiet --no-deps \
    --dest build/peers verl==0.9.1 ||
    echo 'bench: verl is absent: plain Python takes its place' >&2
  verl=(build/peers/verl-*.whl)
fi
[ -e "${verl[0]}" ] || verl=()
python bench/balance_peer.py out/balance.jsonl "${verl[@]}" --json | keep

# Stock FSDP2 over gloo, on one parameter group.
fsdp2_group() {
  local ranks=$1
  shift
  OMP_NUM_THREADS=1 timeout 600 python -m torch.distributed.run --standalone \
    --nproc-per-node "$ranks" bench/fsdp2_group.py --json "$@" | keep
}
for ranks in $world_sizes; do
  fsdp2_group "$ranks" --mib "$mib"
  for shard in $shard_sizes; do
    fsdp2_group "$ranks" --mode lockstep --mib $((shard * ranks)) --rounds 9 --operations gather
  done
  fsdp2_group "$ranks" --mode lockstep --mib $((${shard_sizes%% *} * ranks)) --rounds 9 \
    --operations push
done

if command -v mpirun >/dev/null && command -v mpicxx >/dev/null; then
  cmake -S . -B build/mpi -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release \
    -DHEADRACE_MPI=ON -DHEADRACE_TESTS=OFF >/dev/null
  cmake --build build/mpi --target mpi_peer -j "${JOBS:-$(nproc)}" >/dev/null
  as_root=()
  if [ "$(id -u)" -eq 0 ]; then as_root=(--allow-run-as-root); fi
  for operation in gather push; do
    for ranks in $world_sizes; do
      timeout 600 mpirun "${as_root[@]}" --oversubscribe -n "$ranks" \
        build/mpi/bench/mpi_peer "$operation" "$mib" </dev/null | keep
    done
  done
else
  echo 'bench: Open MPI is absent, so that peer is left out' >&2
fi
