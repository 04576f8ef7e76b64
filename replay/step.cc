#include "replay/step.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "replay/compute_clock.h"
#include "replay/decoder.h"

namespace headrace::replay {
namespace {

// Backward costs twice forward.
constexpr std::int64_t k_forward_parts = 1;
constexpr std::int64_t k_backward_parts = 2;

// Asking for a result that is there takes less.
constexpr std::int64_t k_no_wait_ns = 10'000;

// A time in which compute stood still for communication.
struct Stall {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

class Step {
 public:
  Step(Calls& calls, Tensors& tensors, StepOptions options)
      : calls_(calls), tensors_(tensors), options_(options), reduced_(tensors.groups()) {}

  Status run(std::span<const std::int64_t> microbatch_ns) {
    HEADRACE_TRY(on_caller([&] { return calls_.enter(); }));
    for (const std::int64_t ns : microbatch_ns) {
      HEADRACE_TRY(microbatch(ns));
    }
    return on_caller([&] { return calls_.leave(); });
  }

  StepTimes times(std::int64_t begin_ns) const {
    StepTimes times{
        .begin_ns = begin_ns, .end_ns = now_ns(), .compute_ns = clock_.computed(), .bytes = bytes_};
    for (const CallTime& call : calls_.drain()) {
      CallTotal& total = times.calls[static_cast<std::size_t>(call.kind)];
      total.calls += 1;
      total.waited_ns += call.waited_ns;
      total.work_ns += call.end_ns - call.begin_ns - call.waited_ns;
      std::int64_t stood_still = 0;
      for (const Stall& stall : stalls_) {
        const std::int64_t begin = std::max(call.begin_ns, stall.begin_ns);
        stood_still += std::max<std::int64_t>(0, std::min(call.end_ns, stall.end_ns) - begin);
      }
      times.waiting_ns += std::min(stood_still, call.waited_ns);
    }
    return times;
  }

 private:
  std::size_t layers() const { return tensors_.groups() - 1; }
  // Layers forward, then back.
  std::size_t group_of(std::size_t phase) const {
    return 1 + (phase < layers() ? phase : 2 * layers() - 1 - phase);
  }

  Status microbatch(std::int64_t ns) {
    const auto parts = static_cast<std::int64_t>(layers()) * (k_forward_parts + k_backward_parts);
    HEADRACE_TRY(start_gather(k_root, 0));
    HEADRACE_TRY(start_gather(group_of(0), 0));
    HEADRACE_TRY(wait_gather(k_root, 0));
    for (std::size_t phase = 0; phase < 2 * layers(); ++phase) {
      const bool backward = phase >= layers();
      const std::size_t slot = phase % Tensors::k_slots;
      HEADRACE_TRY(wait_gather(group_of(phase), slot));
      if (phase + 1 < 2 * layers()) {
        HEADRACE_TRY(start_gather(group_of(phase + 1), (phase + 1) % Tensors::k_slots));
      }
      if (backward &&
          phase >= layers() + Tensors::k_slots) {  // its gradients' memory is used again
        HEADRACE_TRY(wait_reduce(group_of(phase - Tensors::k_slots)));
      }
      clock_.compute(ns * (backward ? k_backward_parts : k_forward_parts) / parts);
      if (backward) {
        HEADRACE_TRY(start_reduce(group_of(phase), slot));
      }
    }
    return start_reduce(k_root, 0);
  }

  Status start_gather(std::size_t group, std::size_t slot) {
    bytes_ += unsharded_bytes(group);
    return calls_.start_gather(group, tensors_.landings(group, slot));
  }
  Status wait_gather(std::size_t group, std::size_t slot) {
    HEADRACE_TRY(communicate([&] { return calls_.wait_gather(group); }));
    if (options_.check && !tensors_.landings_are_right(group, slot)) {
      return session_error("a replayed gather brought wrong bytes");
    }
    return {};
  }
  Status start_reduce(std::size_t group, std::size_t slot) {
    HEADRACE_TRY(wait_reduce(group));
    bytes_ += unsharded_bytes(group);
    const bool first = !reduced_[group];
    reduced_[group] = true;
    const auto start = [&] {
      return calls_.start_reduce(group, tensors_.gradients(group, slot), first);
    };
    return options_.on_worker ? start() : on_caller(start);
  }
  Status wait_reduce(std::size_t group) {
    return reduced_[group] ? communicate([&] { return calls_.wait_reduce(group); }) : Status();
  }
  std::uint64_t unsharded_bytes(std::size_t group) const {
    return tensors_.map(group).shard_group_bytes() *
           static_cast<std::uint64_t>(tensors_.world_size());
  }

  // Communication on this thread.
  Status on_caller(const std::function<Status()>& body) {
    Stall stall{.begin_ns = now_ns(), .end_ns = 0};
    HEADRACE_TRY(body());
    stall.end_ns = now_ns();
    stalls_.push_back(stall);
    clock_.spend(stall.end_ns - stall.begin_ns);
    return {};
  }
  // A call that has to be over before compute goes on, wherever it runs.
  Status communicate(const std::function<Status()>& body) {
    return options_.on_worker ? beside_caller(body) : on_caller(body);
  }
  // A wait for communication on the worker. Where it was over, compute was not held up.
  Status beside_caller(const std::function<Status()>& wait) {
    const std::int64_t asked = now_ns();
    HEADRACE_TRY(wait());
    const std::int64_t got = now_ns();
    if (got - asked > k_no_wait_ns) {
      stalls_.push_back({.begin_ns = clock_.at(), .end_ns = got});
      clock_.advance_to(got);
    }
    return {};
  }

  Calls& calls_;
  Tensors& tensors_;
  StepOptions options_;
  std::vector<bool> reduced_;  ///< by group, in this step
  ComputeClock clock_;
  std::vector<Stall> stalls_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<StepTimes> run_step(Calls& calls, Tensors& tensors,
                           std::span<const std::int64_t> microbatch_ns, StepOptions options) {
  const std::int64_t begin = now_ns();
  Step step(calls, tensors, options);
  HEADRACE_TRY(step.run(microbatch_ns));
  return step.times(begin);
}

}  // namespace headrace::replay
