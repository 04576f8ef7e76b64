#include "runtime/cuda/stream_monitor.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace headrace {
namespace {

struct StreamWait {
  Signal* signal;
  std::uint64_t at_least;
  int peer;
  std::string what;
  std::int64_t begin_ns = 0;  ///< when it came to be the first of its stream; 0: not yet

  bool over() const { return signal->value.load(std::memory_order_acquire) >= at_least; }
};

}  // namespace

struct StreamMonitor::State {
  Liveness* liveness;
  WaitConfig config;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, std::deque<StreamWait>> waits;  ///< by stream, in its order
  bool stopping = false;
  std::thread thread;

  void run();
  void look();
  void look_at(StreamWait& first);
  void release();
};

void StreamMonitor::State::run() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    look();
    changed.wait_for(lock, config.slice);
  }
  release();
}

void StreamMonitor::State::look() {
  for (auto& [stream, queue] : waits) {
    while (!queue.empty() && queue.front().over()) {
      queue.pop_front();
    }
    if (!queue.empty()) {
      look_at(queue.front());
    }
  }
  if (!liveness->check()) {
    release();
  }
}

// Ends the session where the wait can come to nothing.
void StreamMonitor::State::look_at(StreamWait& first) {
  if (first.begin_ns == 0) {
    first.begin_ns = now_ns();
  }
  if (liveness->has_left(first.peer) && !first.over()) {
    liveness->fail(peer_error(
        first.peer, fmt::format("rank {} left the session while a stream of this rank waited for "
                                "its {}; did its training loop end early?",
                                first.peer, first.what)));
    return;
  }
  const std::int64_t waited_ns = now_ns() - first.begin_ns;
  if (waited_ns >= std::chrono::nanoseconds(config.no_progress).count()) {
    liveness->fail(peer_error(
        first.peer,
        fmt::format("no {} from rank {} for {:.1f} s (limit no_progress_seconds); it is alive, but "
                    "does not get there",
                    first.what, first.peer, static_cast<double>(waited_ns) / 1e9)));
  }
}

// Again at every look: a peer may have set a signal to its own value after this.
void StreamMonitor::State::release() {
  for (auto& [stream, queue] : waits) {
    for (StreamWait& wait : queue) {
      wait.signal->value.store(k_released, std::memory_order_release);
    }
  }
}

StreamMonitor::StreamMonitor(Liveness* liveness, WaitConfig config) : state_(new State) {
  state_->liveness = liveness;
  state_->config = config;
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

StreamMonitor::~StreamMonitor() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void StreamMonitor::expect(const void* stream, Signal* signal, std::uint64_t at_least, int peer,
                           std::string_view what) {
  const std::lock_guard lock(state_->mutex);
  state_->waits[stream].push_back(
      {.signal = signal, .at_least = at_least, .peer = peer, .what = std::string(what)});
}

}  // namespace headrace
