#include "bench/cuda/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "bench/cuda/buffer.h"
#include "bench/cuda/event.h"
#include "bench/cuda/gpu_environment.h"
#include "bench/cuda/random_values.h"
#include "bench/environment.h"
#include "bench/result.h"
#include "kernel/cuda/accumulate.h"
#include "kernel/cuda/cast.h"
#include "kernel/cuda/copy.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/sum.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace::bench {
namespace {

constexpr std::size_t k_sources = 8;
constexpr std::size_t k_half = item_size(DType::bfloat16);
constexpr std::size_t k_full = item_size(DType::float32);
// Elements are counted in multiples of this, so that all sources of a sum are aligned.
constexpr std::size_t k_element_step = 4096;

/// A kernel by the bytes that it is to read and write and its blocks.
struct Measured {
  std::string name;
  std::size_t bytes_per_element = 0;
  std::function<Status(cudaStream_t, std::size_t elements, int blocks)> launch;
};

class Bench {
 public:
  static Result<Bench> make(const KernelBenchOptions& options) {
    HEADRACE_TRY_ASSIGN(auto owned, CudaStream::make(StreamPriority::low, nullptr));
    HEADRACE_TRY_ASSIGN(const cudaStream_t stream, native_stream(*owned, "a benchmark"));
    HEADRACE_TRY_ASSIGN(DeviceBuffer from, DeviceBuffer::make(options.full_grid_bytes));
    HEADRACE_TRY_ASSIGN(DeviceBuffer to, DeviceBuffer::make(options.full_grid_bytes));
    // Two bf16 side by side are also an fp32 of a sensible magnitude.
    HEADRACE_TRY(fill_bfloat16(stream, from.data(), from.bytes() / k_half, 1));
    HEADRACE_TRY(fill_bfloat16(stream, to.data(), to.bytes() / k_half, 2));
    HEADRACE_TRY_ASSIGN(const int multiprocessors,
                        device_attribute(cudaDevAttrMultiProcessorCount));
    return Bench(options, std::move(owned), stream, std::move(from), std::move(to),
                 multiprocessors);
  }

  Result<std::vector<KernelCase>> run() {
    HEADRACE_TRY(measure_copy());
    for (const Measured& kernel : kernels()) {
      for (const int blocks : all_blocks()) {
        const std::size_t bytes =
            blocks < multiprocessors_ ? options_.few_blocks_bytes : options_.full_grid_bytes;
        const std::size_t elements =
            bytes / kernel.bytes_per_element / k_element_step * k_element_step;
        HEADRACE_TRY(measure(kernel.name, blocks, elements * kernel.bytes_per_element,
                             [&] { return kernel.launch(stream_, elements, blocks); }));
      }
    }
    HEADRACE_TRY(measure_pieces());
    return std::move(cases_);
  }

 private:
  Bench(KernelBenchOptions options, std::unique_ptr<CudaStream> owned, cudaStream_t stream,
        DeviceBuffer from, DeviceBuffer to, int multiprocessors)
      : options_(std::move(options)),
        owned_(std::move(owned)),
        stream_(stream),
        from_(std::move(from)),
        to_(std::move(to)),
        multiprocessors_(multiprocessors) {}

  std::vector<int> all_blocks() const {
    std::vector<int> blocks = options_.blocks;
    blocks.push_back(multiprocessors_);
    blocks.push_back(multiprocessors_ * static_cast<int>(k_blocks_per_multiprocessor));
    return blocks;
  }

  std::vector<Measured> kernels() const {
    const auto accumulate_as = [this](Adders adders) {
      return [this, adders](cudaStream_t stream, std::size_t elements, int blocks) {
        const AccumulateJob job = {static_cast<float*>(to_.data()), from_.data(), DType::bfloat16,
                                   elements};
        return launch_accumulate(stream, {&job, 1}, adders, blocks);
      };
    };
    const auto cast_as = [this](DType to, DType from) {
      return [this, to, from](cudaStream_t stream, std::size_t elements, int blocks) {
        const CastJob job = {to_.data(), to, from_.data(), from, elements};
        return launch_cast(stream, {&job, 1}, blocks);
      };
    };
    const auto sum_as = [this](SumMethod method) {
      return [this, method](cudaStream_t stream, std::size_t elements, int blocks) {
        return launch_sum(stream, sum_job(elements), method, blocks);
      };
    };
    const auto copy = [this](cudaStream_t stream, std::size_t bytes, int blocks) {
      const CopySegment segment = {to_.data(), from_.data(), bytes};
      return copy_blocks(stream, {&segment, 1}, blocks);
    };
    // An accumulator is read and written.
    return {{"sum of 8 bfloat16, plain", k_sources * k_half + k_full, sum_as(SumMethod::plain)},
            {"sum of 8 bfloat16, bulk", k_sources * k_half + k_full, sum_as(SumMethod::bulk)},
            {"accumulate bfloat16, one adder", k_half + 2 * k_full, accumulate_as(Adders::one)},
            {"accumulate bfloat16, many adders", k_half + 2 * k_full, accumulate_as(Adders::many)},
            {"cast to float32", k_half + k_full, cast_as(DType::float32, DType::bfloat16)},
            {"cast to bfloat16", k_half + k_full, cast_as(DType::bfloat16, DType::float32)},
            {"copy", 2, copy}};
  }

  SumJob sum_job(std::size_t elements) const {
    SumJob job = {.to = static_cast<float*>(to_.data()), .rows = 1, .elements = elements};
    for (std::size_t s = 0; s < k_sources; ++s) {
      job.sources.push_back(
          {static_cast<std::byte*>(from_.data()) + s * elements * k_half, 0, DType::bfloat16});
    }
    return job;
  }

  Status measure_copy() {
    const std::size_t bytes = options_.full_grid_bytes / 2;
    return measure("copy within the device by CUDA", 0, 2 * bytes, [&] {
      return cuda_status(
          cudaMemcpyAsync(to_.data(), from_.data(), bytes, cudaMemcpyDeviceToDevice, stream_),
          "a copy within the device");
    });
  }

  // Small pieces that lie apart, by the copy engine one after the other and by one launch.
  Status measure_pieces() {
    std::vector<CopySegment> pieces;
    const std::size_t apart = from_.bytes() / static_cast<std::size_t>(options_.pieces);
    for (int i = 0; i < options_.pieces; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * apart;
      pieces.push_back(
          {static_cast<std::byte*>(to_.data()) + at / k_element_step * k_element_step,
           static_cast<std::byte*>(from_.data()) + at / k_element_step * k_element_step,
           options_.piece_bytes});
    }
    const std::size_t bytes = 2 * pieces.size() * options_.piece_bytes;
    const std::string name = fmt::format("{} pieces of {} KiB, ", pieces.size(),  //
                                         options_.piece_bytes >> 10);
    const auto one_by_one = [&]() -> Status {
      for (const CopySegment& piece : pieces) {
        HEADRACE_TRY(cuda_status(
            cudaMemcpyAsync(piece.to, piece.from, piece.bytes, cudaMemcpyDeviceToDevice, stream_),
            "a copy within the device"));
      }
      return {};
    };
    HEADRACE_TRY(measure(name + "cudaMemcpyAsync each", 0, bytes, one_by_one));
    for (const int blocks : options_.blocks) {
      HEADRACE_TRY(measure(name + "one launch", blocks, bytes,
                           [&] { return copy_blocks(stream_, pieces, blocks); }));
    }
    return {};
  }

  Status measure(const std::string& name, int blocks, std::size_t bytes,
                 const std::function<Status()>& launch_once) {
    for (int i = 0; i < options_.warm_up; ++i) {
      HEADRACE_TRY(launch_once());
    }
    std::vector<OwnedEvent> events;
    for (int i = 0; i <= options_.timed; ++i) {
      HEADRACE_TRY_ASSIGN(events.emplace_back(), make_event(true));
    }
    HEADRACE_TRY(mark(events.front()));
    for (int i = 1; i <= options_.timed; ++i) {
      HEADRACE_TRY(launch_once());
      HEADRACE_TRY(mark(events[static_cast<std::size_t>(i)]));
    }
    HEADRACE_TRY(wait_for(events.back().get(), Deadline(options_.limit)));
    KernelCase one = {.kernel = name, .blocks = blocks, .bytes = static_cast<double>(bytes)};
    for (std::size_t i = 1; i < events.size(); ++i) {
      float ms = 0;
      HEADRACE_TRY(cuda_status(cudaEventElapsedTime(&ms, events[i - 1].get(), events[i].get()),
                               "the time between two events"));
      one.ms.push_back(ms);
    }
    const KernelCase& ceiling = cases_.empty() ? one : cases_.front();
    one.limit_ms = median(ceiling.ms) * one.bytes / ceiling.bytes;
    cases_.push_back(std::move(one));
    return {};
  }

  Status mark(const OwnedEvent& event) {
    return cuda_status(cudaEventRecord(event.get(), stream_), "recording an event");
  }

  KernelBenchOptions options_;
  std::unique_ptr<CudaStream> owned_;
  cudaStream_t stream_;
  DeviceBuffer from_;
  DeviceBuffer to_;
  int multiprocessors_;
  std::vector<KernelCase> cases_;
};

double gb_per_s(const KernelCase& one) { return one.bytes / 1e6 / median(one.ms); }

}  // namespace

Result<std::vector<KernelCase>> run_kernel_bench(const KernelBenchOptions& options) {
  HEADRACE_TRY_ASSIGN(Bench bench, Bench::make(options));
  return bench.run();
}

std::string to_text(const KernelCase& one) {
  const auto [low, high] = spread(one.ms);
  std::string text = one.kernel;
  if (one.blocks > 0) {
    text += fmt::format(", {} blocks", one.blocks);
  }
  text += fmt::format(": {:.3f} ms, {:.0f} GB/s read and written", median(one.ms), gb_per_s(one));
  if (one.blocks > 0) {
    text += fmt::format(" ({:.1f} a block)", gb_per_s(one) / one.blocks);
  }
  return text + fmt::format(", {:.3f} of a copy's rate, spread {:.2f} to {:.2f}",
                            one.limit_ms / median(one.ms), low, high);
}

std::string to_json(const KernelCase& one) {
  const double ms = median(one.ms);
  const auto [low, high] = spread(one.ms);
  nlohmann::ordered_json json;
  json["bench"] = "kernel";
  json["case"] = {{"kernel", one.kernel}, {"blocks", one.blocks}, {"bytes", one.bytes}};
  json["ms"] = rounded(ms);
  json["gb_per_s"] = rounded(gb_per_s(one));
  json["peers"] = {{"limit", rounded(one.limit_ms)}};
  json["ratios"] = {{"limit", rounded(one.limit_ms / ms)}};
  json["spread"] = {{"ours", {rounded(low), rounded(high)}}};
  json.update(gpu_environment());
  return json.dump();
}

}  // namespace headrace::bench
