#include <cmath>
#include <utility>

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

// Leaves the minibatch that a push left open, and looks at what it came to.
Status leave(Session& session, const RankTensors& tensors, const GroupSpec& group) {
  if (!session.in_bracket()) {
    return {};
  }
  HEADRACE_TRY(session.finish(0, 0, 0));
  const auto settled = session.settle();
  return settled ? check_sums(session, tensors, group) : Status(settled.error());
}

}  // namespace

Result<std::vector<Spans>> push_bench(const RankPlan& plan) {
  // What is taken first gets the kernel's scattered small pages, what is taken last whole runs of
  // them, which is worth up to a fifth. The limit's memory is taken half before and half after the
  // sessions', so that neither side has the better pages.
  const AddressMap map(plan.group, plan.world_size);
  std::vector<Buffer> accumulators;
  const auto take_accumulators = [&](int owners) {
    for (int owner = 0; owner < owners; ++owner) {
      accumulators.emplace_back(map.accumulator_bytes());
    }
  };
  take_accumulators(plan.world_size / 2);
  HEADRACE_TRY_ASSIGN(auto arrival, connect(plan, Accumulation::arrival));
  HEADRACE_TRY_ASSIGN(
      const Wired wired,
      wire(plan, std::move(arrival), PackedBaseline::memory_bytes(plan.group, plan.world_size)));
  HEADRACE_TRY_ASSIGN(const auto reproducible, connect(plan, Accumulation::reproducible));
  RankTensors tensors(plan.group, plan.rank, plan.world_size);
  PackedBaseline baseline(plan.group, plan.rank, plan.world_size, wired.baseline.get());
  const std::vector<std::vector<ShardSource>> sources{
      {tensors.shards().begin(), tensors.shards().end()}};
  const std::vector<GradientSource> gradients(tensors.gradients().begin(),
                                              tensors.gradients().end());
  std::vector<float> output(tensors.map().accumulator_bytes() / sizeof(float));
  take_accumulators(plan.world_size - plan.world_size / 2);

  const auto open = [&](Session& session) -> Status {
    auto epoch = session.open(BracketKind::minibatch, 0, 0, sources);
    return epoch ? Status() : Status(epoch.error());
  };
  const auto push = [&gradients](Session& session) -> Status {
    const auto ticket = session.push(0, gradients);
    return ticket ? Status() : Status(ticket.error());
  };
  const auto push_arm = [&](const char* name, Session& session) {
    return Arm{.name = name,
               .run = [&] { return push(session); },
               .prepare = [&]() -> Status {
                 HEADRACE_TRY(leave(session, tensors, plan.group));
                 return open(session);
               }};
  };
  const auto minibatch_arm = [&](const char* name, Session& session) {
    return Arm{.name = name,
               .run = [&]() -> Status {
                 HEADRACE_TRY(open(session));
                 HEADRACE_TRY(push(session));
                 HEADRACE_TRY(session.finish(0, 0, 0));
                 const auto settled = session.settle();
                 return settled ? Status() : Status(settled.error());
               },
               .prepare = [&] { return leave(session, tensors, plan.group); }};
  };
  const auto private_accumulate = [&]() -> Status {
    for (int owner = 0; owner < plan.world_size; ++owner) {
      for (const GradientSource& gradient : gradients) {
        const std::size_t p = gradient.parameter;
        accumulate(reinterpret_cast<float*>(accumulators[static_cast<std::size_t>(owner)].data() +
                                            map.accumulator_offset(p)),
                   static_cast<const std::byte*>(gradient.address) +
                       map.first_element(p, owner) * item_size(gradient.dtype),
                   gradient.dtype, map.shard_elements(p, owner));
      }
    }
    return {};
  };
  const std::vector<Arm> arms{minibatch_arm("arrival_minibatch", *wired.session),
                              minibatch_arm("reproducible_minibatch", *reproducible),
                              push_arm("arrival", *wired.session),
                              push_arm("reproducible", *reproducible),
                              {.name = "packed_baseline",
                               .run = [&] { return baseline.reduce_scatter(gradients, output); },
                               .prepare = nullptr},
                              {.name = "limit", .run = private_accumulate, .prepare = nullptr}};
  return run_wired(plan, wired, tensors, arms, [&]() -> Status {
    HEADRACE_TRY(leave(*wired.session, tensors, plan.group));
    HEADRACE_TRY(leave(*reproducible, tensors, plan.group));
    reproducible->close();
    return {};
  });
}

}  // namespace headrace::bench
