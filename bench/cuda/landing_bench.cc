#include "bench/cuda/landing_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/bench_group.h"
#include "bench/cuda/buffer.h"
#include "bench/cuda/event.h"
#include "bench/forked_ranks.h"
#include "bench/result.h"
#include "plan/address_map.h"
#include "transport/cuda/cuda_transport.h"
#include "transport/exchange.h"
#include "transport/meet.h"

namespace headrace::bench {
namespace {

constexpr std::size_t k_signals = 4096;
constexpr std::size_t k_shard = 8192;
constexpr std::size_t k_cache_line = 64;
constexpr Milliseconds k_run_limit{20'000};

/// A stream with the event that ends a run on it.
struct Line {
  std::unique_ptr<CudaStream> stream;
  OwnedEvent done;

  cudaStream_t native() const { return static_cast<cudaStream_t>(stream->native_handle()); }
  Status record() const {
    return cuda_status(::cudaEventRecord(done.get(), native()), "record the end of a run");
  }
};

Result<Line> make_line() {
  Line line;
  HEADRACE_TRY_ASSIGN(line.stream, CudaStream::make(StreamPriority::high, {}));
  HEADRACE_TRY_ASSIGN(line.done, make_event(false));
  return line;
}

/// One rank with its landings, and the copies of every arm.
class Lander {
 public:
  static Result<std::unique_ptr<Lander>> make(const LandingOptions& options, int shard_mib,
                                              int rank, const Exchange& exchange) {
    std::unique_ptr<Lander> lander(new Lander(options, shard_mib, rank));
    HEADRACE_TRY(lander->connect(exchange));
    HEADRACE_TRY(lander->allocate());
    lander->list_copies();
    HEADRACE_TRY(lander->capture());
    return lander;
  }

  Result<std::vector<Spans>> run() {
    const auto one = [this](std::vector<CopySegment>* copies, CopyWay way, int blocks) {
      return [this, copies, way, blocks]() -> Status {
        CopyChoice choice;
        choice.way = way;
        choice.kernel_blocks = blocks;
        HEADRACE_TRY(enqueue_copies(lines_[0].native(), *copies, choice));
        return finish(1);
      };
    };
    const auto checked = [this] { return check(); };
    const std::vector<Arm> arms{
        {.name = "automatic", .run = [this] { return by_channel(); }, .prepare = {}},
        {.name = "engine", .run = one(&landing_, CopyWay::copy_engine, 1), .prepare = checked},
        {.name = "engine_streams", .run = [this] { return by_streams(); }, .prepare = checked},
        {.name = "engine_graph", .run = [this] { return by_graph(); }, .prepare = checked},
        {.name = "kernel",
         .run = one(&landing_, CopyWay::kernel, CopyChoice().kernel_blocks),
         .prepare = checked},
        {.name = "kernel_full",
         .run = one(&landing_, CopyWay::kernel, full_grid_),
         .prepare = checked},
        {.name = "packed", .run = [this] { return packed(); }, .prepare = checked},
        {.name = "flat", .run = one(&flat_, CopyWay::copy_engine, 1), .prepare = checked},
        {.name = "descriptors",
         .run = one(&lines_copies_, CopyWay::copy_engine, 1),
         .prepare = {}}};
    auto spans = run_rounds(options_.rounds, arms, [this] { return meet(); });
    transport_->liveness().leave();
    return spans;
  }

 private:
  Lander(const LandingOptions& options, int shard_mib, int rank)
      : options_(options),
        rank_(rank),
        group_(bench_group(std::int64_t{shard_mib} * options.ranks, DType::bfloat16)),
        map_(group_, options.ranks) {}

  Status connect(const Exchange& exchange) {
    TransportConfig config;
    config.identity = {.rank = rank_,
                       .world_size = options_.ranks,
                       .version = HEADRACE_VERSION,
                       .fingerprint = "",
                       .model = 1,
                       .model_text = "a benchmark"};
    config.control_bytes = k_shard;
    config.memory_bytes = k_shard + map_.published_bytes();
    HEADRACE_TRY_ASSIGN(transport_, make_cuda_transport(config, exchange));
    return cuda_status(
        ::cudaMemset(transport_->at(k_shard), mark_of(rank_), map_.published_bytes()),
        "write the shard");
  }

  static unsigned char mark_of(int rank) { return static_cast<unsigned char>(rank + 1); }

  Status allocate() {
    for (int i = 0; i < options_.streams; ++i) {
      HEADRACE_TRY_ASSIGN(Line line, make_line());
      lines_.push_back(std::move(line));
    }
    std::size_t bytes = 0;
    for (std::size_t p = 0; p < map_.parameters(); ++p) {
      offsets_.push_back(bytes);
      bytes += (map_.landing_bytes(p) + 255) / 256 * 256;
    }
    HEADRACE_TRY_ASSIGN(DeviceBuffer landings, DeviceBuffer::make(bytes));
    landings_.emplace(std::move(landings));
    HEADRACE_TRY_ASSIGN(
        DeviceBuffer rank_major,
        DeviceBuffer::make(map_.published_bytes() * static_cast<std::size_t>(options_.ranks)));
    rank_major_.emplace(std::move(rank_major));
    int multiprocessors = 0;
    int device = 0;
    HEADRACE_TRY(cuda_status(::cudaGetDevice(&device), "ask for the device"));
    HEADRACE_TRY(cuda_status(
        ::cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "ask for the multiprocessors"));
    full_grid_ = 2 * multiprocessors;
    return {};
  }

  std::byte* landing(std::size_t p, int owner) const {
    return static_cast<std::byte*>(landings_->data()) + offsets_[p] + map_.landing_offset(p, owner);
  }
  std::byte* packed_block(int owner) const {
    return static_cast<std::byte*>(rank_major_->data()) +
           static_cast<std::size_t>(owner) * map_.published_bytes();
  }

  void list_copies() {
    for (int step = 0; step < options_.ranks; ++step) {
      const int owner = (rank_ + step) % options_.ranks;
      const std::byte* shard = transport_->channel(owner).view(k_shard);
      flat_.push_back({.to = packed_block(owner), .from = shard, .bytes = map_.published_bytes()});
      for (std::size_t p = 0; p < map_.parameters(); ++p) {
        landing_.push_back({.to = landing(p, owner),
                            .from = shard + map_.published_offset(p),
                            .bytes = map_.block_bytes(p)});
        copy_out_.push_back({.to = landing(p, owner),
                             .from = packed_block(owner) + map_.published_offset(p),
                             .bytes = map_.block_bytes(p)});
        lines_copies_.push_back({.to = packed_block(owner) + lines_copies_.size() * k_cache_line,
                                 .from = shard + (lines_copies_.size() % 64) * 2 * k_cache_line,
                                 .bytes = std::min(k_cache_line, map_.published_bytes())});
      }
    }
  }

  Status capture() {
    cudaGraph_t graph = nullptr;
    HEADRACE_TRY(cuda_status(
        ::cudaStreamBeginCapture(lines_[0].native(), cudaStreamCaptureModeThreadLocal), "capture"));
    for (const CopySegment& copy : landing_) {
      if (copy.bytes > 0) {
        HEADRACE_TRY(cuda_status(::cudaMemcpyAsync(copy.to, copy.from, copy.bytes,
                                                   cudaMemcpyDeviceToDevice, lines_[0].native()),
                                 "capture a copy"));
      }
    }
    HEADRACE_TRY(cuda_status(::cudaStreamEndCapture(lines_[0].native(), &graph), "capture"));
    const Status status =
        cuda_status(::cudaGraphInstantiate(&graph_, graph, 0), "make a graph of copies");
    static_cast<void>(::cudaGraphDestroy(graph));
    return status;
  }

  /// Until the first `lines` streams have passed.
  Status finish(std::size_t lines) {
    for (std::size_t i = 0; i < lines; ++i) {
      HEADRACE_TRY(lines_[i].record());
    }
    for (std::size_t i = 0; i < lines; ++i) {
      HEADRACE_TRY(wait_for(lines_[i].done.get(), Deadline(k_run_limit)));
    }
    return {};
  }

  Status by_channel() {
    for (int step = 0; step < options_.ranks; ++step) {
      const int owner = (rank_ + step) % options_.ranks;
      std::vector<Piece> pieces;
      for (std::size_t p = 0; p < map_.parameters(); ++p) {
        pieces.push_back({.remote_offset = k_shard + map_.published_offset(p),
                          .local = landing(p, owner),
                          .bytes = map_.block_bytes(p)});
      }
      HEADRACE_TRY(transport_->channel(owner).get(*lines_[0].stream, pieces));
    }
    return finish(1);
  }

  Status by_streams() {
    CopyChoice engine;
    engine.way = CopyWay::copy_engine;
    const std::size_t share = (landing_.size() + lines_.size() - 1) / lines_.size();
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const std::size_t begin = std::min(i * share, landing_.size());
      const std::size_t count = std::min(share, landing_.size() - begin);
      HEADRACE_TRY(
          enqueue_copies(lines_[i].native(), std::span(landing_).subspan(begin, count), engine));
    }
    return finish(lines_.size());
  }

  Status by_graph() {
    HEADRACE_TRY(cuda_status(::cudaGraphLaunch(graph_, lines_[0].native()), "launch copies"));
    return finish(1);
  }

  Status packed() {
    CopyChoice choice;
    choice.way = CopyWay::copy_engine;
    HEADRACE_TRY(enqueue_copies(lines_[0].native(), flat_, choice));
    choice.way = CopyWay::kernel;
    choice.kernel_blocks = full_grid_;
    HEADRACE_TRY(enqueue_copies(lines_[0].native(), copy_out_, choice));
    return finish(1);
  }

  /// In the first rounds: the arm before has written every block, ends included; then clears.
  Status check() {
    if (checks_ >= 2 * 8) {
      return {};
    }
    ++checks_;
    for (std::size_t p = 0; p < map_.parameters(); ++p) {
      for (int owner = 0; owner < options_.ranks; ++owner) {
        std::vector<unsigned char> block(map_.block_bytes(p));
        HEADRACE_TRY(cuda_status(
            ::cudaMemcpy(block.data(), landing(p, owner), block.size(), cudaMemcpyDeviceToHost),
            "read a landing"));
        if (!std::all_of(block.begin(), block.end(),
                         [owner](unsigned char byte) { return byte == mark_of(owner); })) {
          return session_error(fmt::format("tensor {} did not land whole from rank {}", p, owner));
        }
      }
    }
    HEADRACE_TRY(cuda_status(::cudaMemset(landings_->data(), 0xEE, landings_->bytes()), "clear"));
    return cuda_status(::cudaDeviceSynchronize(), "clear");
  }

  Status meet() {
    return headrace::meet(*transport_, host_, rank_, options_.ranks, k_signals, ++round_,
                          "next run");
  }

  LandingOptions options_;
  int rank_;
  GroupSpec group_;
  AddressMap map_;
  std::unique_ptr<Transport> transport_;
  InlineStream host_;
  std::uint64_t round_ = 0;
  std::vector<Line> lines_;
  std::optional<DeviceBuffer> landings_;
  std::optional<DeviceBuffer> rank_major_;
  std::vector<std::size_t> offsets_;  ///< of a parameter's landing
  std::vector<CopySegment> landing_, copy_out_, flat_, lines_copies_;
  cudaGraphExec_t graph_ = nullptr;
  int full_grid_ = 1;
  int checks_ = 0;
};

double median_of(const LandingCase& one, const std::string& name) {
  for (const Samples& arm : one.arms) {
    if (arm.name == name) {
      return median(arm.ms);
    }
  }
  return 0;
}

/// What bounds copy engines: the bytes, or the number of copies.
double bound_ms(const LandingCase& one) {
  return std::max(median_of(one, "flat"), median_of(one, "descriptors"));
}

}  // namespace

Result<LandingCase> run_landing_case(const LandingOptions& options, int shard_mib) {
  HEADRACE_TRY_ASSIGN(const ForkExchange exchange, ForkExchange::make(options.ranks));
  LandingCase result{.ranks = options.ranks, .shard_mib = shard_mib};
  result.descriptors =
      static_cast<std::size_t>(options.ranks) *
      bench_group(std::int64_t{shard_mib} * options.ranks, DType::bfloat16).parameters.size();
  HEADRACE_TRY_ASSIGN(
      result.arms,
      fork_ranks(options.ranks, options.limit, [&](int rank) -> Result<std::vector<Spans>> {
        HEADRACE_TRY_ASSIGN(const auto lander,
                            Lander::make(options, shard_mib, rank, exchange.for_rank(rank)));
        return lander->run();
      }));
  return result;
}

std::string to_text(const LandingCase& one) {
  std::string text = fmt::format("landing {} ranks, shards of {} MiB, {} copies a rank:", one.ranks,
                                 one.shard_mib, one.descriptors);
  for (const Samples& arm : one.arms) {
    text += fmt::format(" {} {:.3f}", arm.name, median(arm.ms));
  }
  const double ours = median_of(one, "automatic");
  return text + fmt::format(" ms; bound/automatic {:.2f}, packed/automatic {:.2f}",
                            bound_ms(one) / ours, median_of(one, "packed") / ours);
}

std::string to_json(const LandingCase& one) {
  nlohmann::json json{{"bench", "landing"},
                      {"ranks", one.ranks},
                      {"shard_mib", one.shard_mib},
                      {"descriptors", one.descriptors},
                      {"bound_ms", bound_ms(one)}};
  for (const Samples& arm : one.arms) {
    const auto [low, high] = spread(arm.ms);
    json["ms"][arm.name] = median(arm.ms);
    json["spread"][arm.name] = {low, high};
  }
  return json.dump();
}

}  // namespace headrace::bench
