#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/result.h"

namespace headrace {

/// A point in a stream's order. Copyable; all copies name the same point.
class Event {
 public:
  class Source {
   public:
    virtual ~Source() = default;
    virtual bool done() const = 0;
    virtual Status wait(Deadline deadline) = 0;
    /// The device's own event, or null on the host.
    virtual void* native_handle() const { return nullptr; }
  };

  /// An event that has already happened.
  Event() = default;
  explicit Event(std::shared_ptr<Source> source) : source_(std::move(source)) {}

  bool done() const { return source_ == nullptr || source_->done(); }
  /// The first error of the work before the event, or success once it is done.
  Status wait(Deadline deadline) { return source_ == nullptr ? Status() : source_->wait(deadline); }
  void* native_handle() const { return source_ == nullptr ? nullptr : source_->native_handle(); }

 private:
  std::shared_ptr<Source> source_;
};

/// Operations in order. What an operation refers to must stay valid until the stream has passed it.
/// A backend accepts the streams that its capabilities name: host backends run `Operation`s, device
/// backends take the native handle and enqueue their own work.
class Stream {
 public:
  using Operation = std::function<Status()>;

  virtual ~Stream() = default;
  /// Runs `operation` after all earlier ones. An inline stream runs it now and returns its status;
  /// any other returns success and reports the failure at the next event.
  virtual Status enqueue(const Operation& operation) = 0;
  /// An event after all operations so far.
  virtual Result<Event> record() = 0;
  /// Holds back later operations until the event has happened.
  virtual Status wait(Event event, Deadline deadline) = 0;
  /// The device's own stream handle, or null on the host.
  virtual void* native_handle() const { return nullptr; }
};

/// Runs everything on the calling thread, at once.
class InlineStream final : public Stream {
 public:
  Status enqueue(const Operation& operation) override { return operation(); }
  Result<Event> record() override { return Event(); }
  Status wait(Event event, Deadline deadline) override { return event.wait(deadline); }
};

}  // namespace headrace
