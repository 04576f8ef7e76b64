#include "session/task.h"

#include <utility>

namespace headrace {

Result<Task> Task::start(Stream& worker, Body body) {
  Task task({});
  task.status_ = std::make_shared<Status>();
  HEADRACE_TRY(worker.enqueue([body = std::move(body), status = task.status_]() -> Status {
    *status = body();
    return {};
  }));
  HEADRACE_TRY_ASSIGN(task.event_, worker.record());
  return task;
}

bool Task::wait(Milliseconds limit) {
  if (event_ && !event_->done()) {
    static_cast<void>(event_->wait(Deadline(limit)));  // its error: not done in time
  }
  return ready();
}

Status Task::result() { return on_worker() ? *status_ : body_(); }

}  // namespace headrace
