#include <cmath>

#include "bench/gather_bench.h"
#include "collective/packed_baseline.h"
#include "kernel/accumulate.h"

namespace headrace::bench {
namespace {

// Every rank pushed the same small integers, so the sum is exact.
Status check_sums(Session& session, const RankTensors& tensors, const GroupSpec& group) {
  for (std::size_t p = 0; p < group.parameters.size(); ++p) {
    const std::size_t count = tensors.map().shard_elements(p, session.rank());
    std::vector<float> sum(count);
    std::vector<float> one(count);
    HEADRACE_TRY(session.collect(0, p, sum.data(), DType::float32, 1.0F, false));
    accumulate(one.data(), tensors.shards()[p].address, group.parameters[p].dtype, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (sum[i] != one[i] * static_cast<float>(session.world_size())) {
        return session_error("a push brought a wrong sum");
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Spans>> push_bench(const RankPlan& plan) {
  HEADRACE_TRY_ASSIGN(Wired wired, wire(plan));
  Session& session = *wired.session;
  RankTensors tensors(plan.group, plan.rank, plan.world_size);
  PackedBaseline baseline(plan.group, plan.rank, plan.world_size, wired.baseline.get());
  const std::vector<std::vector<ShardSource>> sources{
      {tensors.shards().begin(), tensors.shards().end()}};
  const std::vector<GradientSource> gradients(tensors.gradients().begin(),
                                              tensors.gradients().end());
  std::vector<float> output(tensors.map().accumulator_bytes() / sizeof(float));
  const Buffer accumulators(static_cast<std::size_t>(plan.world_size) *
                            tensors.map().accumulator_bytes());

  const auto settle = [&]() -> Status {
    HEADRACE_TRY(session.finish(0, 0, 0));
    auto settled = session.settle();
    return settled ? Status() : Status(settled.error());
  };
  const auto open = [&]() -> Status {
    if (session.in_bracket()) {
      HEADRACE_TRY(settle());
      HEADRACE_TRY(check_sums(session, tensors, plan.group));
    }
    auto epoch = session.open(BracketKind::minibatch, 0, 0, sources);
    return epoch ? Status() : Status(epoch.error());
  };
  const auto private_accumulate = [&]() -> Status {
    for (int owner = 0; owner < plan.world_size; ++owner) {
      for (const GradientSource& gradient : gradients) {
        const std::size_t p = gradient.parameter;
        accumulate(reinterpret_cast<float*>(accumulators.data() +
                                            static_cast<std::size_t>(owner) *
                                                tensors.map().accumulator_bytes() +
                                            tensors.map().accumulator_offset(p)),
                   static_cast<const std::byte*>(gradient.address) +
                       tensors.map().first_element(p, owner) * item_size(gradient.dtype),
                   gradient.dtype, tensors.map().shard_elements(p, owner));
      }
    }
    return {};
  };
  const std::vector<Arm> arms{
      {.name = "push", .run = [&] { return session.push(0, gradients); }, .prepare = open},
      {.name = "packed_baseline",
       .run = [&] { return baseline.reduce_scatter(gradients, output); },
       .prepare = nullptr},
      {.name = "limit", .run = private_accumulate, .prepare = nullptr}};
  return run_wired(plan, wired, tensors, arms, settle);
}

}  // namespace headrace::bench
