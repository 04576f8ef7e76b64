// What stock FSDP2 does, on our transport.

#include <utility>

#include "collective/packed_baseline.h"
#include "kernel/accumulate.h"
#include "replay/calls.h"
#include "replay/decoder.h"
#include "transport/shm/shm_transport.h"

namespace headrace::replay {
namespace {

// Groups of one shape, with the persistent buffers that they share.
struct Shape {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<PackedBaseline> collectives;
  std::vector<float> output = {};  ///< of one reduction
};

class PackedCalls final : public Calls {
 public:
  PackedCalls(bool on_worker, Tensors& tensors, Shape root, Shape layers)
      : Calls(on_worker),
        tensors_(tensors),
        root_(std::move(root)),
        layers_(std::move(layers)) {
    set_groups(tensors.groups());
    root_.output.resize(tensors.sums(k_root).size());
    layers_.output.resize(tensors.sums(k_root + 1).size());
  }
  ~PackedCalls() override { end_worker(); }

  void close() override {
    root_.transport->liveness().leave();
    layers_.transport->liveness().leave();
  }

 protected:
  Status do_enter() override { return {}; }
  Status do_gather(std::size_t group, std::span<void* const> landings) override {
    return shape(group).collectives->all_gather(tensors_.shards()[group], landings);
  }
  // The first gradient of a step becomes the sum, later ones are added to it, as `.grad` is.
  Status do_reduce(std::size_t group, std::span<const GradientSource> gradients,
                   bool first) override {
    const std::span<float> sums = tensors_.sums(group);
    auto& [transport, collectives, output] = shape(group);
    if (first) {
      return collectives->reduce_scatter(gradients, sums);
    }
    HEADRACE_TRY(collectives->reduce_scatter(gradients, output));
    accumulate(sums.data(), output.data(), DType::float32, output.size());
    return {};
  }
  Status do_leave() override { return {}; }
  std::int64_t waited_ns() const override {
    return root_.transport->waiter().waited_ns() + layers_.transport->waiter().waited_ns();
  }

 private:
  Shape& shape(std::size_t group) { return group == k_root ? root_ : layers_; }

  Tensors& tensors_;
  Shape root_;
  Shape layers_;
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
  return std::unique_ptr<Calls>(std::make_unique<PackedCalls>(config.on_worker, tensors,
                                                              std::move(root), std::move(layers)));
}

}  // namespace headrace::replay
