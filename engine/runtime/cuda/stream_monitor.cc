#include "runtime/cuda/stream_monitor.h"

#include <fmt/format.h>
#include <unistd.h>

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
  int owner_pid = ::getpid();
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const void*, std::deque<StreamWait>> waits;  ///< by stream, in its order; none is empty
  bool shows_wait = false;                              ///< on this rank's page
  bool stopping = false;
  std::thread thread;

  void run();
  void look();
  void look_at(const StreamWait& first);
  void drop_met();
  void show_longest();
  void release();
  void abandon();
};

void StreamMonitor::State::run() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    look();
    if (waits.empty()) {
      changed.wait(lock, [this] { return stopping || !waits.empty(); });
    } else {
      changed.wait_for(lock, config.slice);
    }
  }
  abandon();
}

void StreamMonitor::State::look() {
  if (liveness->check()) {
    drop_met();
    show_longest();
    for (const auto& [stream, queue] : waits) {
      look_at(queue.front());
    }
  }
  // At every look again, also of waits that seem over: a peer may have set a signal to its own
  // value since, before the device came to its wait.
  if (!liveness->check()) {
    release();
  }
}

void StreamMonitor::State::drop_met() {
  for (auto entry = waits.begin(); entry != waits.end();) {
    auto& queue = entry->second;
    while (!queue.empty() && queue.front().over()) {
      queue.pop_front();
    }
    if (queue.empty()) {
      entry = waits.erase(entry);
      continue;
    }
    if (queue.front().begin_ns == 0) {
      queue.front().begin_ns = now_ns();
    }
    ++entry;
  }
}

void StreamMonitor::State::show_longest() {
  const StreamWait* longest = nullptr;
  for (const auto& [stream, queue] : waits) {
    if (longest == nullptr || queue.front().begin_ns < longest->begin_ns) {
      longest = &queue.front();
    }
  }
  if (longest != nullptr) {
    liveness->show_wait(longest->peer);
  } else if (shows_wait) {
    liveness->show_no_wait();
  }
  shows_wait = longest != nullptr;
}

// Ends the session where the wait can come to nothing.
void StreamMonitor::State::look_at(const StreamWait& first) {
  if (liveness->has_left(first.peer) && !first.over()) {
    liveness->fail(left_error(first.peer, first.what));
  } else if (now_ns() - first.begin_ns >= std::chrono::nanoseconds(config.no_progress).count()) {
    liveness->fail(no_progress_error(*liveness, first.peer, first.what, config.no_progress));
  }
}

void StreamMonitor::State::release() {
  for (auto& [stream, queue] : waits) {
    for (StreamWait& wait : queue) {
      wait.signal->value.store(k_released, std::memory_order_release);
    }
  }
}

void StreamMonitor::State::abandon() {
  if (liveness->check()) {
    drop_met();
  }
  if (waits.empty()) {
    return;
  }
  const StreamWait& first = waits.begin()->second.front();
  liveness->fail(session_error(fmt::format(
      "it ended its session while a stream of its device still waited for the {} of rank {}",
      first.what, first.peer)));
  release();
}

StreamMonitor::StreamMonitor(Liveness* liveness, WaitConfig config) : state_(new State) {
  state_->liveness = liveness;
  state_->config = config;
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

StreamMonitor::~StreamMonitor() {
  if (state_->owner_pid != ::getpid()) {
    // A forked child has the object but not the thread, which may hold the mutex for ever.
    state_->thread.detach();
    (void)state_.release();  // NOLINT: see above
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void StreamMonitor::expect(const void* stream, Signal* signal, std::uint64_t at_least, int peer,
                           std::string_view what) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->waits[stream].push_back(
        {.signal = signal, .at_least = at_least, .peer = peer, .what = std::string(what)});
  }
  state_->changed.notify_all();
}

void StreamMonitor::withdraw(const void* stream) {
  const std::lock_guard lock(state_->mutex);
  const auto entry = state_->waits.find(stream);
  if (entry == state_->waits.end()) {
    return;
  }
  entry->second.pop_back();
  if (entry->second.empty()) {
    state_->waits.erase(entry);
  }
}

void StreamMonitor::abandon() {
  const std::lock_guard lock(state_->mutex);
  state_->abandon();
}

}  // namespace headrace
