#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "runtime/stream.h"

namespace headrace {

/// Runs its operations in order on a thread of its own. After the first failure nothing later runs,
/// and every event from there on reports it. Going waits for the operation that is running and
/// drops those that are not.
class ThreadStream final : public Stream {
 public:
  using OnFailure = std::function<void(const Error&)>;

  /// `on_failure` is told of the first failure, on the stream's thread; may be empty. `name` lives
  /// as long as the program.
  explicit ThreadStream(OnFailure on_failure = {}, const char* name = "stream");
  ~ThreadStream() override;
  ThreadStream(const ThreadStream&) = delete;
  ThreadStream& operator=(const ThreadStream&) = delete;

  /// The name of the stream whose thread this is; null on any other thread.
  static const char* here();

  Status enqueue(const Operation& operation) override;
  Result<Event> record() override;
  Status wait(Event event, Deadline deadline) override;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< shared with the events
};

}  // namespace headrace
