// What stock FSDP2 does, on our transport.

#include <utility>

#include "base/clock.h"
#include "collective/packed_baseline.h"
#include "kernel/accumulate.h"
#include "replay/calls.h"
#include "replay/decoder.h"
#include "runtime/thread_stream.h"
#include "transport/shm/shm_transport.h"

namespace headrace::replay {
namespace {

// Groups of one shape, with the persistent buffers that they share.
struct Shape {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<PackedBaseline> collectives;
  std::vector<float> output = {};  ///< of one reduction
};

// All collectives run in order on one thread, the caller's or a worker's.
class PackedCalls final : public Calls {
 public:
  PackedCalls(bool on_worker, Tensors& tensors, Shape root, Shape layers)
      : tensors_(tensors),
        root_(std::move(root)),
        layers_(std::move(layers)),
        asked_(tensors.groups()),
        gathers_(tensors.groups()),
        reductions_(tensors.groups()) {
    root_.output.resize(tensors.sums(k_root).size());
    layers_.output.resize(tensors.sums(k_root + 1).size());
    if (on_worker) {
      worker_ = std::make_unique<ThreadStream>();
    }
  }

  Status enter() override { return {}; }
  Status start_gather(std::size_t group, std::span<void* const> landings) override {
    asked_[group] = landings;
    if (worker_ == nullptr) {
      return {};
    }
    return on_worker(gathers_[group], [this, group, landings] { return gather(group, landings); });
  }
  Status wait_gather(std::size_t group) override {
    return worker_ == nullptr ? gather(group, asked_[group]) : wait(gathers_[group]);
  }
  Status start_reduce(std::size_t group, std::span<const GradientSource> gradients,
                      bool first) override {
    if (worker_ == nullptr) {
      return reduce(group, gradients, first);
    }
    return on_worker(reductions_[group],
                     [this, group, gradients, first] { return reduce(group, gradients, first); });
  }
  Status wait_reduce(std::size_t group) override { return wait(reductions_[group]); }
  Status leave() override {
    for (const Event& reduction : reductions_) {
      HEADRACE_TRY(wait(reduction));
    }
    return {};
  }
  std::vector<CallTime> drain() override { return std::exchange(times_, {}); }
  void close() override {
    root_.transport->liveness().leave();
    layers_.transport->liveness().leave();
  }

 private:
  Shape& shape(std::size_t group) { return group == k_root ? root_ : layers_; }
  Status on_worker(Event& done, const std::function<Status()>& body) {
    HEADRACE_TRY(worker_->enqueue(body));
    HEADRACE_TRY_ASSIGN(done, worker_->record());
    return {};
  }
  static Status wait(Event event) { return event.wait(Deadline(WaitConfig{}.no_progress)); }

  Status gather(std::size_t group, std::span<void* const> landings) {
    return timed(CallKind::gather, [&] {
      return shape(group).collectives->all_gather(tensors_.shards()[group], landings);
    });
  }
  // The first gradient of a step becomes the sum, later ones are added to it, as `.grad` is.
  Status reduce(std::size_t group, std::span<const GradientSource> gradients, bool first) {
    return timed(CallKind::reduce, [&]() -> Status {
      const std::span<float> sums = tensors_.sums(group);
      auto& [transport, collectives, output] = shape(group);
      if (first) {
        return collectives->reduce_scatter(gradients, sums);
      }
      HEADRACE_TRY(collectives->reduce_scatter(gradients, output));
      accumulate(sums.data(), output.data(), DType::float32, output.size());
      return {};
    });
  }
  Status timed(CallKind kind, const std::function<Status()>& body) {
    CallTime time{
        .kind = kind, .begin_ns = now_ns(), .end_ns = 0, .waited_ns = Waiter::waited_here_ns()};
    HEADRACE_TRY(body());
    time.end_ns = now_ns();
    time.waited_ns = Waiter::waited_here_ns() - time.waited_ns;
    times_.push_back(time);
    return {};
  }

  Tensors& tensors_;
  Shape root_;
  Shape layers_;
  std::vector<std::span<void* const>> asked_;  ///< by group: landings of the last gather
  std::vector<Event> gathers_;                 ///< by group
  std::vector<Event> reductions_;
  std::vector<CallTime> times_;
  std::unique_ptr<ThreadStream> worker_;  ///< ends before what it uses
};

Result<Shape> make_shape(const CallsConfig& config, const GroupSpec& group) {
  TransportConfig transport;
  transport.identity.rank = config.rank;
  transport.identity.world_size = config.world_size;
  transport.memory_bytes = PackedBaseline::memory_bytes(group, config.world_size);
  Shape shape;
  HEADRACE_TRY_ASSIGN(shape.transport, make_shm_transport(transport, config.next_exchange()));
  shape.collectives = std::make_unique<PackedBaseline>(group, config.rank, config.world_size,
                                                       shape.transport.get());
  return shape;
}

}  // namespace

Result<std::unique_ptr<Calls>> make_packed_calls(const CallsConfig& config, Tensors& tensors) {
  HEADRACE_TRY_ASSIGN(Shape root, make_shape(config, config.model.groups[k_root]));
  HEADRACE_TRY_ASSIGN(Shape layers, make_shape(config, config.model.groups[k_root + 1]));
  return std::unique_ptr<Calls>(
      std::make_unique<PackedCalls>(config.on_worker, tensors, std::move(root), std::move(layers)));
}

}  // namespace headrace::replay
