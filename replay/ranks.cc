#include "replay/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "replay/calls.h"
#include "replay/compute_clock.h"
#include "replay/step.h"
#include "replay/tensors.h"
#include "transport/exchange.h"
#include "transport/meet.h"
#include "transport/shm/shm_transport.h"

namespace headrace::replay {
namespace {

std::vector<Way> ways_of(const Run& run) {
  std::vector<Way> ways;
  for (const Way way : k_ways) {
    if (std::ranges::any_of(run.arms, [&](const Arm& arm) { return arm.way == way; })) {
      ways.push_back(way);
    }
  }
  return ways;
}

Status validate(const Run& run) {
  for (const Arm& arm : run.arms) {
    if (arm.minibatches.size() != run.arms.front().minibatches.size()) {
      return operation_error(fmt::format("arm {} has {} minibatches and arm {} {}", arm.name,
                                         arm.minibatches.size(), run.arms.front().name,
                                         run.arms.front().minibatches.size()));
    }
    for (const Minibatch& minibatch : arm.minibatches) {
      if (minibatch.size() != static_cast<std::size_t>(run.ranks)) {
        return operation_error(fmt::format("arm {} has a minibatch for {} ranks, not {}", arm.name,
                                           minibatch.size(), run.ranks));
      }
      const auto count = [](const auto& microbatches) { return microbatches.size(); };
      const auto [least, most] = std::ranges::minmax(minibatch, {}, count);
      if (arm.way != Way::on_demand && least.size() != most.size()) {
        return operation_error(
            fmt::format("arm {} runs {}, where all ranks need as many microbatches, but one has {} "
                        "and one {}",
                        arm.name, to_string(arm.way), least.size(), most.size()));
      }
    }
  }
  return {};
}

// A transport on which ranks line up between steps.
class Meeting {
 public:
  static Result<Meeting> make(int rank, int world_size, const Exchange& exchange) {
    TransportConfig config;
    config.identity.rank = rank;
    config.identity.world_size = world_size;
    config.memory_bytes = 2 * k_page;  // liveness, then a signal a rank
    HEADRACE_TRY_ASSIGN(auto transport, make_shm_transport(config, exchange));
    return Meeting(rank, world_size, std::move(transport));
  }
  Status meet() {
    return headrace::meet(*transport_, stream_, rank_, world_size_, k_page, ++round_,
                          "start of a step");
  }
  void leave() { transport_->liveness().leave(); }
  void fail(const Error& error) { transport_->liveness().fail(error); }

 private:
  Meeting(int rank, int world_size, std::unique_ptr<Transport> transport)
      : rank_(rank), world_size_(world_size), transport_(std::move(transport)) {}

  int rank_;
  int world_size_;
  std::unique_ptr<Transport> transport_;
  InlineStream stream_;
  std::uint64_t round_ = 0;
};

std::size_t microbatches(const Minibatch& minibatch) {
  std::size_t sum = 0;
  for (const auto& rank : minibatch) {
    sum += rank.size();
  }
  return sum;
}

class RankBody {
 public:
  RankBody(const Run& run, int rank, std::function<Exchange()> next_exchange)
      : run_(run),
        rank_(rank),
        next_exchange_(std::move(next_exchange)),
        tensors_(run.model, rank, run.ranks) {}

  Result<std::vector<ArmTimes>> operator()() {
    ask_for_exact_sleeps();
    HEADRACE_TRY_ASSIGN(Meeting meeting, Meeting::make(rank_, run_.ranks, next_exchange_()));
    for (const Way way : ways_of(run_)) {
      HEADRACE_TRY_ASSIGN(calls_[way], make_calls(way,
                                                  {.model = run_.model,
                                                   .rank = rank_,
                                                   .world_size = run_.ranks,
                                                   .on_worker = run_.on_worker,
                                                   .next_exchange = next_exchange_},
                                                  tensors_));
    }
    std::vector<ArmTimes> times(run_.arms.size());
    const int timed = static_cast<int>(run_.arms.front().minibatches.size());
    for (int step = 0; step < run_.warm_up + timed; ++step) {
      const auto minibatch =
          static_cast<std::size_t>(step < run_.warm_up ? step % timed : step - run_.warm_up);
      if (run_.before_step) {
        if (const Status status = run_.before_step(rank_, step); !status) {
          meeting.fail(status.error());
          return status.error();
        }
      }
      for (std::size_t arm = 0; arm < run_.arms.size(); ++arm) {
        HEADRACE_TRY(meeting.meet());
        HEADRACE_TRY_ASSIGN(
            const StepTimes step_times,
            run_arm(run_.arms[arm], minibatch, checked_.insert(run_.arms[arm].way).second));
        if (step >= run_.warm_up) {
          times[arm].push_back({step_times});
        }
      }
    }
    HEADRACE_TRY(meeting.meet());
    for (auto& [way, calls] : calls_) {
      calls->close();
    }
    meeting.leave();
    return times;
  }

 private:
  Result<StepTimes> run_arm(const Arm& arm, std::size_t minibatch, bool check) {
    const Minibatch& work = arm.minibatches[minibatch];
    HEADRACE_TRY_ASSIGN(const StepTimes times,
                        run_step(*calls_[arm.way], tensors_, work[static_cast<std::size_t>(rank_)],
                                 {.on_worker = run_.on_worker, .check = check}));
    const std::size_t backwards = microbatches(work);
    if (check && backwards > 0 && !tensors_.sums_are(static_cast<float>(backwards))) {
      return session_error(fmt::format("a replayed step of {} brought wrong sums", arm.name));
    }
    return times;
  }

  const Run& run_;
  int rank_;
  std::function<Exchange()> next_exchange_;
  Tensors tensors_;
  std::map<Way, std::unique_ptr<Calls>> calls_;
  std::set<Way> checked_;
};

}  // namespace

Result<std::vector<ArmTimes>> run_ranks(const Run& run) {
  HEADRACE_TRY(validate(run));
  std::size_t count = 1;
  for (const Way way : ways_of(run)) {
    count += exchanges_of(way);
  }
  std::vector<ForkExchange> exchanges;
  for (std::size_t i = 0; i < count; ++i) {
    HEADRACE_TRY_ASSIGN(ForkExchange exchange, ForkExchange::make(run.ranks));
    exchanges.push_back(std::move(exchange));
  }
  HEADRACE_TRY_ASSIGN(
      const std::vector<std::string> texts,
      bench::run_rank_processes(
          run.ranks, run.placement, run.limits, [&](int rank) -> Result<std::string> {
            std::size_t next = 0;
            RankBody body(run, rank, [&] { return exchanges[next++].for_rank(rank); });
            HEADRACE_TRY_ASSIGN(const auto times, body());
            return to_text(times);
          }));
  std::vector<ArmTimes> times(run.arms.size());
  for (std::size_t arm = 0; arm < times.size(); ++arm) {
    times[arm].resize(run.arms[arm].minibatches.size());
  }
  for (const std::string& text : texts) {
    add_text(times, text);
  }
  return times;
}

Result<std::size_t> memory_bytes(const Run& run) {
  std::size_t bytes = tensor_bytes(run.model, run.ranks);
  for (const Way way : ways_of(run)) {
    HEADRACE_TRY_ASSIGN(const std::size_t shared, shared_bytes(way, run.model, run.ranks));
    bytes += shared;
  }
  return bytes * static_cast<std::size_t>(run.ranks);
}

}  // namespace headrace::replay
