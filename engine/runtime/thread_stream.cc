#include "runtime/thread_stream.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace headrace {

struct ThreadStream::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Operation> pending;
  std::uint64_t enqueued = 0;
  std::uint64_t passed = 0;
  Status status;  ///< the first failure
  bool stopping = false;
  int owner_pid = ::getpid();
  std::shared_ptr<State> self;  ///< in a forked child: it never goes
  OnFailure on_failure;
  std::thread thread;

  void run();
};

namespace {

thread_local const char* name_here = nullptr;

template <class State>
class Passed final : public Event::Source {
 public:
  Passed(std::shared_ptr<State> state, std::uint64_t number)
      : state_(std::move(state)), number_(number) {}

  bool done() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->passed >= number_;
  }

  Status wait(Deadline deadline) override {
    std::unique_lock lock(state_->mutex);
    const bool done = state_->changed.wait_for(
        lock, deadline.left(), [this] { return state_->passed >= number_ || state_->stopping; });
    if (state_->passed < number_) {
      return session_error(done ? "a stream ended before it came to an event"
                                : "a stream did not come to an event in time");
    }
    return state_->status;
  }

 private:
  std::shared_ptr<State> state_;
  std::uint64_t number_;
};

}  // namespace

void ThreadStream::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !pending.empty(); });
    if (stopping) {
      return;
    }
    const Operation operation = std::move(pending.front());
    pending.pop_front();
    if (status) {
      lock.unlock();
      Status result = operation();
      if (!result && on_failure) {
        on_failure(result.error());
      }
      lock.lock();
      if (!result) {
        status = std::move(result);
      }
    }
    ++passed;
    changed.notify_all();
  }
}

ThreadStream::ThreadStream(OnFailure on_failure, const char* name)
    : state_(std::make_shared<State>()) {
  state_->on_failure = std::move(on_failure);
  State* state = state_.get();
  state->thread = std::thread([state, name] {
    name_here = name;
    state->run();
  });
}

const char* ThreadStream::here() { return name_here; }

ThreadStream::~ThreadStream() {
  if (state_->owner_pid != ::getpid()) {
    // A forked child has the object but not the thread, which may hold the mutex for ever.
    state_->thread.detach();
    state_->self = state_;
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Status ThreadStream::enqueue(const Operation& operation) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->pending.push_back(operation);
    ++state_->enqueued;
  }
  state_->changed.notify_all();
  return {};
}

Result<Event> ThreadStream::record() {
  const std::lock_guard lock(state_->mutex);
  return Event(std::make_shared<Passed<State>>(state_, state_->enqueued));
}

Status ThreadStream::wait(Event event, Deadline deadline) {
  return enqueue([event = std::move(event), deadline]() mutable { return event.wait(deadline); });
}

}  // namespace headrace
