// Calls of a session that are under way: begun, waited for, drained.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "session/session.h"

namespace headrace {

Status Session::start(std::size_t group, Task::Body body) {
  if (gathers_.contains(group)) {
    return operation_error(
        fmt::format("a second gather of group {} before the first was waited for", group));
  }
  if (worker_ == nullptr) {
    gathers_.emplace(group, std::move(body));
    return {};
  }
  HEADRACE_TRY_ASSIGN(Task task, Task::start(*worker_, std::move(body)));
  gathers_.emplace(group, std::move(task));
  return {};
}

Status Session::wait_gather(std::size_t group) {
  HEADRACE_TRY(require_usable());
  const auto found = gathers_.find(group);
  if (found == gathers_.end()) {
    HEADRACE_TRY(check());
    return operation_error(fmt::format("a wait for a gather of group {} that none began", group));
  }
  HEADRACE_TRY(hold(found->second, static_cast<int>(group)));
  Task task = std::move(found->second);
  gathers_.erase(found);
  return task.result();
}

Result<std::uint64_t> Session::hand_over(ThreadStream* worker, Task::Body body) {
  if (worker == nullptr) {
    HEADRACE_TRY(body());
    return ++tickets_;
  }
  if (tickets_ >= config_.pushes_in_flight) {
    HEADRACE_TRY(wait_pushed(tickets_ + 1 - config_.pushes_in_flight));
  }
  HEADRACE_TRY_ASSIGN(Task task, Task::start(*worker, std::move(body)));
  pushes_.push_back(std::move(task));
  return ++tickets_;
}

std::uint64_t Session::pushed() const {
  if (owner_pid_ != ::getpid()) {
    return 0;
  }
  const auto under_way =
      std::find_if(pushes_.begin(), pushes_.end(), [](const Task& task) { return !task.ready(); });
  return tickets_ - static_cast<std::uint64_t>(std::distance(under_way, pushes_.end()));
}

Status Session::wait_pushed(std::uint64_t ticket) {
  HEADRACE_TRY(require_usable());
  if (ticket > tickets_) {
    return operation_error(
        fmt::format("a wait for ticket {} where {} were given out", ticket, tickets_));
  }
  while (!pushes_.empty() && tickets_ - pushes_.size() < ticket) {
    HEADRACE_TRY(hold(pushes_.front(), -1));
    Task task = std::move(pushes_.front());
    pushes_.pop_front();
    HEADRACE_TRY(task.result());
  }
  return check();
}

Status Session::hold(Task& task, int group) {
  if (task.ready()) {
    return {};
  }
  TraceEvent event{.name = "wait", .group = group, .begin_ns = now_ns()};
  Status status;
  while (!task.wait(config_.wait.slice)) {
    if (config_.interrupted && config_.interrupted()) {
      status = operation_error("interrupted while waiting for this rank's own worker");
      break;
    }
  }
  event.end_ns = now_ns();
  event.waited_ns = event.end_ns - event.begin_ns;
  trace_.add(event);
  held_ns_ += event.waited_ns;
  counters_.wait_ns += event.waited_ns;
  return status;
}

Status Session::drain_work() {
  Status first;
  for (auto& [group, task] : gathers_) {
    HEADRACE_TRY(hold(task, static_cast<int>(group)));
    if (task.on_worker() && first) {
      first = task.result();
    }
  }
  gathers_.clear();
  HEADRACE_TRY(wait_pushed(tickets_));
  return first;
}

void Session::stop_work() {
  stopping_->store(true);
  worker_.reset();
  pusher_.reset();
  gathers_.clear();
  pushes_.clear();
}

}  // namespace headrace
