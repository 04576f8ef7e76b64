#include "bench/cuda/paced_load.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "bench/cuda/event.h"
#include "runtime/cuda/cuda_stream.h"
#include "transport/cuda/cuda_transport.h"

namespace headrace::bench {
namespace {

constexpr std::uint64_t k_first_units = 2;

}  // namespace

struct PacedLoad::State {
  State(Load what, const Pace& at, std::unique_ptr<CudaStream> made)
      : load(std::move(what)), pace(at), stream(std::move(made)) {}

  Load load;
  Pace pace;
  std::unique_ptr<CudaStream> stream;
  std::atomic<bool> stopping = false;
  std::atomic<std::uint64_t> done = 0;  ///< units
  std::atomic<bool> failed = false;
  Status status;  ///< of the thread; to be read once it has ended, or failed is set
  std::int64_t counted_from_ns = 0;
  std::uint64_t counted_from_units = 0;
  std::thread thread;

  Status run();
  Status enqueue(std::deque<OwnedEvent>& outstanding);
  Status collect(std::deque<OwnedEvent>& outstanding);
};

Status PacedLoad::State::enqueue(std::deque<OwnedEvent>& outstanding) {
  HEADRACE_TRY(load.enqueue(*stream));
  HEADRACE_TRY_ASSIGN(const cudaStream_t native, native_stream(*stream, "a load"));
  HEADRACE_TRY_ASSIGN(auto event, make_event(false));
  HEADRACE_TRY(cuda_status(cudaEventRecord(event.get(), native), "recording an event"));
  outstanding.push_back(std::move(event));
  return {};
}

Status PacedLoad::State::collect(std::deque<OwnedEvent>& outstanding) {
  while (!outstanding.empty()) {
    const cudaError_t answer = cudaEventQuery(outstanding.front().get());
    if (answer == cudaErrorNotReady) {
      return {};
    }
    HEADRACE_TRY(cuda_status(answer, "work of the load"));
    outstanding.pop_front();
    done.fetch_add(1, std::memory_order_release);
  }
  return {};
}

Status PacedLoad::State::run() {
  std::deque<OwnedEvent> outstanding;
  const double unit_ns = static_cast<double>(load.bytes) / pace.bytes_per_second * 1e9;
  auto due_ns = static_cast<double>(now_ns());
  while (!stopping.load(std::memory_order_acquire)) {
    HEADRACE_TRY(collect(outstanding));
    const auto now = static_cast<double>(now_ns());
    if (now < due_ns || std::cmp_greater_equal(outstanding.size(), pace.most_outstanding)) {
      std::this_thread::yield();
      continue;
    }
    HEADRACE_TRY(enqueue(outstanding));
    // What was late is made up for, but not what a device that fell far behind did not take.
    due_ns = std::max(due_ns + unit_ns, now - pace.most_outstanding * unit_ns);
  }
  return outstanding.empty() ? Status() : wait_for(outstanding.back().get(), Deadline(pace.limit));
}

Result<PacedLoad> PacedLoad::make(const Load& load, const Pace& pace) {
  HEADRACE_TRY_ASSIGN(auto stream, CudaStream::make(CudaOptions().priority, nullptr));
  int device = 0;
  HEADRACE_TRY(cuda_status(cudaGetDevice(&device), "reading the current device"));
  auto state = std::make_unique<State>(load, pace, std::move(stream));
  state->thread = std::thread([state = state.get(), device] {
    state->status = cuda_status(cudaSetDevice(device), "choosing the device");
    if (state->status) {
      state->status = state->run();
    }
    state->failed.store(!state->status, std::memory_order_release);
  });
  PacedLoad paced(std::move(state));
  const Deadline deadline(pace.limit);
  while (paced.state_->done.load(std::memory_order_acquire) < k_first_units) {
    if (paced.state_->failed.load(std::memory_order_acquire)) {
      return paced.state_->status.error();
    }
    if (deadline.passed()) {
      return session_error("the first units of load '" + load.name + "' were not done in time");
    }
    std::this_thread::yield();
  }
  paced.state_->counted_from_units = paced.state_->done.load(std::memory_order_acquire);
  paced.state_->counted_from_ns = now_ns();
  return paced;
}

Result<double> PacedLoad::stop() {
  const std::uint64_t units =
      state_->done.load(std::memory_order_acquire) - state_->counted_from_units;
  const double seconds = static_cast<double>(now_ns() - state_->counted_from_ns) / 1e9;
  state_->stopping.store(true, std::memory_order_release);
  state_->thread.join();
  HEADRACE_TRY(state_->status);
  return static_cast<double>(units * state_->load.bytes) / seconds;
}

PacedLoad::PacedLoad(std::unique_ptr<State> state) : state_(std::move(state)) {}
PacedLoad::PacedLoad(PacedLoad&&) noexcept = default;
PacedLoad::~PacedLoad() {
  if (state_ != nullptr && state_->thread.joinable()) {
    state_->stopping.store(true, std::memory_order_release);
    state_->thread.join();
  }
}

}  // namespace headrace::bench
