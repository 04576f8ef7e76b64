#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace headrace::bench {

struct KernelBenchOptions {
  int warm_up = 5;
  int timed = 40;
  /// Blocks of the cases with few of them; each kernel also runs with one and with two blocks a
  /// multiprocessor.
  std::vector<int> blocks{1, 4, 8, 16};
  /// Bytes that a launch reads and writes: several times what the L2 holds, so that no launch finds
  /// what the last one left there. With few blocks the lesser, since those take longer.
  std::size_t few_blocks_bytes = std::size_t{256} << 20;
  std::size_t full_grid_bytes = std::size_t{2} << 30;
  /// Pieces for the kernel that lands many small ones, and bytes of each.
  int pieces = 30;
  std::size_t piece_bytes = std::size_t{64} << 10;
  Milliseconds limit{60'000};  ///< longest wait for the launches of a case
};

/// One kernel with one number of blocks.
struct KernelCase {
  std::string kernel;
  int blocks = 0;          ///< 0: not a kernel of ours
  double bytes = 0;        ///< read and written a launch
  std::vector<double> ms;  ///< a launch, between two events of the device
  double limit_ms = 0;     ///< the same bytes at the rate of a large copy within the device
};

/// The kernels on the current device's memory, filled with random numbers. The first case is the
/// copy that sets the limit of the others.
Result<std::vector<KernelCase>> run_kernel_bench(const KernelBenchOptions& options);

std::string to_text(const KernelCase& one);
/// One JSON object in one line.
std::string to_json(const KernelCase& one);

}  // namespace headrace::bench
