// Our gather and push beside MPI's collectives on the same tensors, in one run:
//
//   mpirun -n 2 mpi_peer gather 64
//
// Prints one JSON object on rank 0, as `headrace bench --json` does.

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench/gather_bench.h"
#include "bench/result.h"
#include "kernel/cast.h"
#include "kernel/copy.h"

namespace headrace::bench {
namespace {

// Fixed-size slots are enough for advertisements.
constexpr int k_slot_bytes = 4096;

Exchange mpi_exchange(int world_size) {
  return [world_size](const std::string& mine, Milliseconds) -> Result<std::vector<std::string>> {
    std::string slot = mine;
    slot.resize(k_slot_bytes, '\0');
    std::string all(static_cast<std::size_t>(k_slot_bytes) * static_cast<std::size_t>(world_size),
                    '\0');
    MPI_Allgather(slot.data(), k_slot_bytes, MPI_CHAR, all.data(), k_slot_bytes, MPI_CHAR,
                  MPI_COMM_WORLD);
    std::vector<std::string> blobs;
    for (int rank = 0; rank < world_size; ++rank) {
      blobs.emplace_back(all.c_str() + static_cast<std::size_t>(rank) * k_slot_bytes);
    }
    return blobs;
  };
}

// MPI_Allgather of the packed shard into a rank-major buffer, then the copy to every landing.
Arm allgather_arm(RankTensors& tensors, int world_size) {
  const std::size_t block = tensors.map().published_bytes();
  auto packed = std::make_shared<Buffer>(block);
  auto gathered = std::make_shared<Buffer>(block * static_cast<std::size_t>(world_size));
  return {
      .name = "open_mpi",
      .run = [&tensors, world_size, block, packed, gathered]() -> Status {
        const AddressMap& map = tensors.map();
        for (std::size_t p = 0; p < map.parameters(); ++p) {
          copy_streaming(packed->data() + map.published_offset(p), tensors.shards()[p].address,
                         map.block_bytes(p));
        }
        MPI_Allgather(packed->data(), static_cast<int>(block), MPI_BYTE, gathered->data(),
                      static_cast<int>(block), MPI_BYTE, MPI_COMM_WORLD);
        for (int rank = 0; rank < world_size; ++rank) {
          for (std::size_t p = 0; p < map.parameters(); ++p) {
            copy_streaming(
                static_cast<std::byte*>(tensors.landings()[p]) + map.landing_offset(p, rank),
                gathered->data() + static_cast<std::size_t>(rank) * block + map.published_offset(p),
                map.block_bytes(p));
          }
        }
        return {};
      },
      .prepare = nullptr};
}

// Gradients packed rank-major in fp32, then MPI_Reduce_scatter_block.
Arm reduce_scatter_arm(RankTensors& tensors, int world_size) {
  const std::size_t block = tensors.map().accumulator_bytes();
  auto packed = std::make_shared<Buffer>(block * static_cast<std::size_t>(world_size));
  auto output = std::make_shared<Buffer>(block);
  return {.name = "open_mpi",
          .run = [&tensors, world_size, block, packed, output]() -> Status {
            const AddressMap& map = tensors.map();
            for (int rank = 0; rank < world_size; ++rank) {
              for (const GradientSource& gradient : tensors.gradients()) {
                cast(packed->data() + static_cast<std::size_t>(rank) * block +
                         map.accumulator_offset(gradient.parameter),
                     DType::float32,
                     static_cast<const std::byte*>(gradient.address) +
                         map.first_element(gradient.parameter, rank) * item_size(gradient.dtype),
                     gradient.dtype, map.shard_elements(gradient.parameter, rank));
              }
            }
            MPI_Reduce_scatter_block(packed->data(), output->data(),
                                     static_cast<int>(block / sizeof(float)), MPI_FLOAT, MPI_SUM,
                                     MPI_COMM_WORLD);
            return {};
          },
          .prepare = nullptr};
}

// Every arm over all ranks, on rank 0.
std::vector<Samples> collect(const std::vector<Spans>& mine) {
  std::vector<std::vector<Spans>> whole{mine};
  for (Spans& arm : whole.front()) {
    for (Span& round : arm.rounds) {
      const Span own = round;
      MPI_Reduce(&own.begin_ns, &round.begin_ns, 1, MPI_INT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
      MPI_Reduce(&own.end_ns, &round.end_ns, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    }
  }
  return over_ranks(whole);
}

int run(int argc, char** argv) {
  int rank = 0;
  int world_size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (argc != 3 || (std::strcmp(argv[1], "gather") != 0 && std::strcmp(argv[1], "push") != 0) ||
      std::atoi(argv[2]) < 1) {
    std::fprintf(stderr, "usage: mpirun -n N mpi_peer gather|push MIB\n");
    return 2;
  }
  const bool gather = std::strcmp(argv[1], "gather") == 0;
  const GroupSpec group = bench_group(std::atoi(argv[2]), DType::bfloat16);
  const RankPlan plan{.rank = rank,
                      .world_size = world_size,
                      .group = group,
                      .rounds = {},
                      .next_exchange = [world_size] { return mpi_exchange(world_size); },
                      .peers = {[gather, world_size](RankTensors& tensors) {
                        return gather ? allgather_arm(tensors, world_size)
                                      : reduce_scatter_arm(tensors, world_size);
                      }}};
  const auto spans = gather ? gather_bench(plan) : push_bench(plan);
  if (!spans) {
    std::fprintf(stderr, "rank %d: %s\n", rank, spans.error().describe().c_str());
    return 1;
  }
  std::vector<Samples> arms = collect(*spans);
  // The publish; or whole minibatches.
  arms.erase(arms.begin(), arms.begin() + (gather ? 1 : 2));
  if (rank == 0) {
    std::printf("%s\n", to_json({.bench = std::string(argv[1]) + "_beside_mpi",
                                 .ranks = world_size,
                                 .mib = std::atof(argv[2]),
                                 .tensors = group.parameters.size(),
                                 .dtype = "bfloat16",
                                 .arms = std::move(arms)})
                            .c_str());
  }
  return 0;
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int code = headrace::bench::run(argc, argv);
  if (code == 1) {
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  MPI_Finalize();
  return code;
}
