#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "runtime/stream.h"

namespace headrace {

/// A call of a session with a status of its own: under way on a worker's stream, or left to who
/// asks for its result.
class Task {
 public:
  using Body = std::function<Status()>;

  /// Begins when `result` is asked for, on the asking thread.
  explicit Task(Body body) : body_(std::move(body)) {}
  /// Enqueues the body on a worker, which never fails for it: later tasks run whatever it returns.
  static Result<Task> start(Stream& worker, Body body);

  bool on_worker() const { return event_.has_value(); }
  /// Whether `result` can be asked for without waiting.
  bool ready() const { return !event_ || event_->done(); }
  /// Returns whether it is ready, after `limit` at most.
  bool wait(Milliseconds limit);
  /// What the body returns; runs it where no worker does. Ready before.
  Status result();

 private:
  Body body_;
  std::optional<Event> event_;
  std::shared_ptr<Status> status_;  ///< written before the event
};

}  // namespace headrace
