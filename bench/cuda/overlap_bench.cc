#include "bench/cuda/overlap_bench.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/cuda/event.h"
#include "bench/cuda/gpu_environment.h"
#include "bench/environment.h"
#include "bench/result.h"
#include "runtime/cuda/cuda_stream.h"

namespace headrace::bench {
namespace {

// The work on a stream of its own and the events around each batch.
struct Timed {
  const Work& work;
  std::unique_ptr<CudaStream> owned;
  cudaStream_t stream;
  std::vector<OwnedEvent> events;  ///< one more than batches

  static Result<Timed> make(const OverlapOptions& options, const Work& work) {
    HEADRACE_TRY_ASSIGN(auto owned, CudaStream::make(StreamPriority::low, nullptr));
    HEADRACE_TRY_ASSIGN(const cudaStream_t stream, native_stream(*owned, "a benchmark"));
    Timed timed{.work = work, .owned = std::move(owned), .stream = stream, .events = {}};
    for (int i = 0; i <= options.batches; ++i) {
      HEADRACE_TRY_ASSIGN(auto event, make_event(true));
      timed.events.push_back(std::move(event));
    }
    return timed;
  }

  Status record(std::size_t event) const {
    return cuda_status(cudaEventRecord(events[event].get(), stream), "recording an event");
  }

  // The first launches warm up.
  Result<double> run(const OverlapOptions& options) const {
    for (std::size_t batch = 0; batch < events.size(); ++batch) {
      for (int launch = 0; launch < options.launches; ++launch) {
        HEADRACE_TRY(work.enqueue(stream));
      }
      HEADRACE_TRY(record(batch));
    }
    HEADRACE_TRY(wait_for(events.back().get(), Deadline(options.limit)));
    std::vector<double> ms;
    for (std::size_t batch = 1; batch < events.size(); ++batch) {
      float between = 0;
      HEADRACE_TRY(
          cuda_status(cudaEventElapsedTime(&between, events[batch - 1].get(), events[batch].get()),
                      "reading the time between two events"));
      ms.push_back(static_cast<double>(between) / options.launches);
    }
    return median(std::move(ms));
  }
};

Result<OverlapCase> measure(const OverlapOptions& options, const Work& work, const Load& load) {
  HEADRACE_TRY_ASSIGN(const Timed timed, Timed::make(options, work));
  OverlapCase one{.work = work.name, .load = load.name, .pace = options.pace.bytes_per_second};
  std::vector<double> achieved;
  HEADRACE_TRY_ASSIGN(double before, timed.run(options));
  one.alone.push_back(before);
  for (int round = 0; round < options.rounds; ++round) {
    HEADRACE_TRY_ASSIGN(PacedLoad running, PacedLoad::make(load, options.pace));
    const Result<double> loaded = timed.run(options);
    HEADRACE_TRY_ASSIGN(const double bytes_per_second, running.stop());
    if (!loaded) {
      return loaded.error();
    }
    HEADRACE_TRY_ASSIGN(const double after, timed.run(options));
    achieved.push_back(bytes_per_second);
    one.alone.push_back(after);
    one.loaded.push_back(*loaded);
    one.slowdown.push_back(*loaded / ((before + after) / 2) - 1);
    before = after;
  }
  one.achieved = median(achieved);
  one.traffic = one.achieved * static_cast<double>(load.traffic) / static_cast<double>(load.bytes);
  return one;
}

}  // namespace

Result<double> time_alone(const OverlapOptions& options, const Work& work) {
  HEADRACE_TRY_ASSIGN(const Timed timed, Timed::make(options, work));
  return timed.run(options);
}

Result<std::vector<OverlapCase>> overlap_bench(const OverlapOptions& options,
                                               std::span<const Work> works,
                                               std::span<const Load> loads) {
  std::vector<OverlapCase> cases;
  for (const Work& work : works) {
    for (const Load& load : loads) {
      HEADRACE_TRY_ASSIGN(auto one, measure(options, work, load));
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

std::string to_text(const OverlapCase& one, double memory_rate) {
  return fmt::format(
      "{:<26} beside {:<16} {:6.1f} of {:.0f} GB/s, {:4.1f} % of the memory's traffic: {:.4f} ms "
      "alone, {:.4f} ms loaded, slower by {:.2f} % (quartiles {:.2f} and {:.2f})",
      one.work, one.load, one.achieved / 1e9, one.pace / 1e9, 100 * one.traffic / memory_rate,
      median(one.alone), median(one.loaded), 100 * median(one.slowdown),
      100 * quantile(one.slowdown, 0.25), 100 * quantile(one.slowdown, 0.75));
}

std::string to_json(const OverlapCase& one, double memory_rate) {
  const auto spread_of = [](const std::vector<double>& ms) {
    const auto [low, high] = spread(ms);
    return nlohmann::ordered_json{rounded(low), rounded(high)};
  };
  nlohmann::ordered_json json{
      {"bench", "overlap"},
      {"case",
       {{"work", one.work}, {"load", one.load}, {"pace_gb_per_s", rounded(one.pace / 1e9)}}},
      {"ms", median(one.loaded)},
      {"peers", {{"alone", median(one.alone)}}},
      {"ratios", {{"alone", rounded(1 / (1 + median(one.slowdown)))}}},
      {"spread", {{"loaded", spread_of(one.loaded)}, {"alone", spread_of(one.alone)}}},
      {"slowdown", median(one.slowdown)},
      {"slowdown_quartiles", {quantile(one.slowdown, 0.25), quantile(one.slowdown, 0.75)}},
      {"load_gb_per_s", rounded(one.achieved / 1e9)},
      {"traffic_share", rounded(one.traffic / memory_rate)}};
  json.update(gpu_environment());
  return json.dump();
}

}  // namespace headrace::bench
