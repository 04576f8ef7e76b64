#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/cuda/axpy.h"
#include "bench/cuda/gemm.h"
#include "bench/cuda/kernel_bench.h"
#include "bench/cuda/landing_bench.h"
#include "bench/cuda/loads.h"
#include "bench/cuda/overlap_bench.h"

namespace headrace::bench {
namespace {

// CLI11 reports what is thrown; below this file errors are values.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result) {
    throw std::runtime_error(result.error().describe());
  }
  return std::move(result).value();
}

// A line for people on the standard output, and one for programs at the end of a file.
class Output {
 public:
  explicit Output(const std::string& file) {
    if (!file.empty()) {
      file_.emplace(file, std::ios::app);
      if (!*file_) {
        throw std::runtime_error(file + " cannot be written");
      }
    }
  }
  void write(const std::string& text, const std::string& json) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
    if (file_) {
      *file_ << json << '\n' << std::flush;
    }
  }

 private:
  std::optional<std::ofstream> file_;
};

struct Options {
  std::string out;
  KernelBenchOptions kernels;
  LandingOptions landing;
  OverlapOptions overlap;
  GemmShape gemm;
  std::vector<double> gb_per_s{50, 200};
  std::size_t unit_kib = 4096;
  std::size_t axpy_mib = 512;
  int ranks = 8;
  int blocks = 4;
};

std::vector<Load> loads(const Options& options) {
  const std::size_t bytes = options.unit_kib << 10;
  const auto kernels = value_or_throw(CudaKernels::create({.max_blocks = options.blocks}));
  return {value_or_throw(copy_engine_load(bytes)),
          value_or_throw(reduce_scatter_load(kernels, options.ranks, bytes)),
          value_or_throw(push_load(options.blocks, bytes)),
          value_or_throw(packed_load(options.ranks, bytes))};
}

void run_overlap(const Options& options) {
  Output output(options.out);
  const AxpyWork axpy = value_or_throw(axpy_work(options.axpy_mib << 20));
  std::vector<Work> works{axpy.work};
  Result<Work> gemm = gemm_work(options.gemm);
  if (gemm) {
    works.push_back(std::move(gemm).value());
  } else {
    fmt::print("no matrix product: {}\n", gemm.error().message);
  }
  const double axpy_ms = value_or_throw(time_alone(options.overlap, axpy.work));
  const double memory_rate = static_cast<double>(axpy.traffic) / (axpy_ms / 1e3);
  fmt::print("memory, read and written by axpy alone: {:.0f} GB/s\n", memory_rate / 1e9);
  const std::vector<Load> all_loads = loads(options);
  OverlapOptions overlap = options.overlap;
  for (const double pace : options.gb_per_s) {
    overlap.pace.bytes_per_second = pace * 1e9;
    for (const OverlapCase& one : value_or_throw(overlap_bench(overlap, works, all_loads))) {
      output.write(to_text(one, memory_rate), to_json(one, memory_rate));
    }
  }
}

void add_overlap(CLI::App& app, Options& options) {
  CLI::App* command = app.add_subcommand(
      "overlap", "How much slower computation is beside communication at a stated pace");
  command->add_option("--rounds", options.overlap.rounds, "alone and loaded in turn")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->add_option("--pace", options.gb_per_s, "GB/s that the load moves")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--unit-kib", options.unit_kib, "that the load moves at a time")
      ->capture_default_str()
      ->check(CLI::Range(64, 1 << 20));
  command->add_option("--blocks", options.blocks, "of the kernels that sum and add, at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->callback([&options] { run_overlap(options); });
}

void run_kernels(const Options& options) {
  Output output(options.out);
  for (const KernelCase& one : value_or_throw(run_kernel_bench(options.kernels))) {
    output.write(to_text(one), to_json(one));
  }
}

void add_kernels(CLI::App& app, Options& options) {
  CLI::App* command = app.add_subcommand(
      "kernels", "Bytes a second of the kernels, beside a copy within the device");
  command->add_option("--blocks", options.kernels.blocks, "of the cases with few")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--timed", options.kernels.timed, "launches a case")
      ->capture_default_str()
      ->check(CLI::Range(1, 10'000));
  command->callback([&options] { run_kernels(options); });
}

void run_landing(const Options& options) {
  Output output(options.out);
  for (const int mib : options.landing.shard_mib) {
    const LandingCase one = value_or_throw(run_landing_case(options.landing, mib));
    output.write(to_text(one), to_json(one));
  }
}

void add_landing(CLI::App& app, Options& options) {
  CLI::App* command = app.add_subcommand(
      "landing", "Ways of landing a group of 30 tensors, ranks as processes on the device");
  command->add_option("--ranks", options.landing.ranks, "processes")
      ->envname("HEADRACE_GPU_RANKS")
      ->capture_default_str()
      ->check(CLI::Range(1, 8));
  command->add_option("--shard-mib", options.landing.shard_mib, "MiB of a rank's shard")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  command->add_option("--timed", options.landing.rounds.timed, "runs of each arm")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command->callback([&options] { run_landing(options); });
}

}  // namespace
}  // namespace headrace::bench

int main(int argc, char** argv) {
  try {
    headrace::bench::Options options;
    CLI::App app{"Benchmarks on one NVIDIA GPU", "gpu_bench"};
    app.require_subcommand(1);
    app.fallthrough();
    app.add_option("--out", options.out, "file that gets one JSON object a case and line");
    headrace::bench::add_overlap(app, options);
    headrace::bench::add_kernels(app, options);
    headrace::bench::add_landing(app, options);
    CLI11_PARSE(app, argc, argv);
    return 0;
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "gpu_bench: %s\n", exception.what());
    return 1;
  }
}
