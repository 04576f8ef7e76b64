#include "replay/sweep.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "balance/strategies.h"
#include "balance/workloads.h"
#include "bench/result.h"
#include "replay/arms.h"
#include "replay/calibration.h"
#include "replay/decoder.h"

namespace headrace::replay {
namespace {

constexpr double k_ns_a_ms = 1e6;

// Layers few and wide, so that bytes and not meetings decide what communication costs.
constexpr ModelShape k_shape{.hidden = 1536,
                             .layers = 2,
                             .heads = 12,
                             .kv_heads = 2,
                             .head_size = 128,
                             .intermediate = 8960,
                             .vocabulary = 16'384};
constexpr double k_model_mib = 16;
constexpr double k_least_communication = 0.3;
constexpr double k_most_communication = 1.2;
constexpr double k_probed_communication = 0.55;  // at which costs are measured
constexpr int k_most_samples_log2 = 2;           // of a rank
constexpr std::int64_t k_even_tokens = 8192;

// Out of so many workloads the first are of even lengths, the others of a random kind.
constexpr std::uint64_t k_kinds = 10;
constexpr std::uint64_t k_even_kinds = 5;
constexpr std::uint64_t k_even_spread = 32;  // lengths differ by at most one part in so many

struct Drawn {
  SweepCase described;
  BalancePlan plan;
};

double uniform(SplitMix64& random) { return static_cast<double>(random.next() >> 11) * 0x1p-53; }

Result<Drawn> draw(int ranks, SplitMix64& random) {
  Drawn drawn;
  SweepCase& described = drawn.described;
  described.ranks = ranks;
  described.samples_per_rank = 1 << random.below(k_most_samples_log2 + 1);
  described.communication = k_least_communication *
                            std::pow(k_most_communication / k_least_communication, uniform(random));
  const bool even = random.below(k_kinds) < k_even_kinds;
  const Workload workload = workloads()[random.below(workloads().size())];
  described.workload = even ? "even" : to_string(workload);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks * described.samples_per_rank));
  for (std::int64_t& length : lengths) {
    length = even ? k_even_tokens -
                        static_cast<std::int64_t>(random.below(k_even_tokens / k_even_spread))
                  : draw_length(workload, random);
  }
  HEADRACE_TRY_ASSIGN(const CostModel cost, CostModel::from_shape(k_shape));
  HEADRACE_TRY_ASSIGN(drawn.plan, plan_minibatch(lengths, {.world_size = ranks,
                                                           .cap = 2 * std::ranges::max(lengths),
                                                           .strategy = Strategy::lb_micro,
                                                           .cost = cost}));
  drawn.plan = padded_for_lockstep(std::move(drawn.plan));
  described.microbatches = static_cast<int>(drawn.plan.ranks.front().size());
  return drawn;
}

// Compute of one microbatch is to be so many times its communication.
double ns_a_cost(const Drawn& drawn, double communication_ns) {
  double cost = 0;
  for (const double rank : drawn.plan.rank_costs) {
    cost += rank;
  }
  const double mean = cost / (drawn.described.ranks * drawn.described.microbatches);
  return communication_ns / drawn.described.communication / mean;
}

CommunicationModel model_of(Calibration calibration, double ns_a_cost) {
  const WayCost& on_demand = calibration[Way::on_demand];
  const WayCost& lockstep = calibration[Way::lockstep];
  return {.gather = on_demand.gather_ns / ns_a_cost,
          .push = on_demand.reduce_ns / ns_a_cost,
          .on_demand_minibatch = on_demand.minibatch_ns / ns_a_cost,
          .all_gather = lockstep.gather_ns / ns_a_cost,
          .reduce_scatter = lockstep.reduce_ns / ns_a_cost,
          .lockstep_minibatch = lockstep.minibatch_ns / ns_a_cost};
}

double median_ms(const ArmTimes& times) {
  std::vector<double> steps;
  for (const auto& step : times) {
    steps.push_back(static_cast<double>(step_ns(step)) / k_ns_a_ms);
  }
  return bench::median(std::move(steps));
}

ModelSpec scaled_model() {
  const double full_mib = elements(decoder_spec(k_shape, 1)) *
                          static_cast<double>(item_size(DType::bfloat16)) / (1 << 20);
  return decoder_spec(k_shape, std::sqrt(full_mib / k_model_mib));
}

// All workloads of one number of ranks.
Status run_ranks_of(const SweepConfig& config, int ranks, std::vector<Drawn>& all) {
  Run run{.ranks = ranks,
          .model = scaled_model(),
          .arms = {},
          .warm_up = config.warm_up,
          .limits = config.limits};
  HEADRACE_TRY_ASSIGN(const Calibration at_once, calibrate(run, {Way::lockstep}));
  const double lockstep_ns = at_once.at(Way::lockstep).microbatch_ns();
  HEADRACE_TRY_ASSIGN(
      const Calibration calibration,
      calibrate(run, {Way::lockstep, Way::on_demand},
                {.many = 3,
                 .steps = 15,
                 .compute_ns = std::llround(lockstep_ns / k_probed_communication)}));
  for (Drawn& drawn : all) {
    SweepCase& described = drawn.described;
    const double scale = ns_a_cost(drawn, lockstep_ns);
    const CommunicationModel communication = model_of(calibration, scale);
    described.chose_on_demand = recommend(drawn.plan, communication, 0.0) == Mode::on_demand;
    described.predicted_lockstep_ms =
        step_time(drawn.plan, Mode::lockstep, communication) * scale / k_ns_a_ms;
    described.predicted_on_demand_ms =
        step_time(drawn.plan, Mode::on_demand, communication) * scale / k_ns_a_ms;
    const std::vector<BalancePlan> repeated(static_cast<std::size_t>(config.repeats), drawn.plan);
    for (const Way way : {Way::lockstep, Way::on_demand}) {
      run.arms.push_back(make_arm({.way = way, .strategy = drawn.plan.strategy}, repeated, scale));
    }
  }
  HEADRACE_TRY_ASSIGN(const std::vector<ArmTimes> times, run_ranks(run));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].described.lockstep_ms = median_ms(times[2 * i]);
    all[i].described.on_demand_ms = median_ms(times[2 * i + 1]);
  }
  return {};
}

}  // namespace

SweepScore score(const std::vector<SweepCase>& cases, double tie) {
  SweepScore score{.cases = static_cast<int>(cases.size())};
  double best = 0;
  double automatic = 0;
  double lockstep = 0;
  double on_demand = 0;
  for (const SweepCase& one : cases) {
    const double slack = (1.0 + tie) * one.best_ms();
    score.lockstep_faster += one.on_demand_ms > slack ? 1 : 0;
    score.on_demand_faster += one.lockstep_ms > slack ? 1 : 0;
    score.automatic.right += one.chosen_ms() <= slack ? 1 : 0;
    score.always_lockstep.right += one.lockstep_ms <= slack ? 1 : 0;
    score.always_on_demand.right += one.on_demand_ms <= slack ? 1 : 0;
    best += one.best_ms();
    automatic += one.chosen_ms();
    lockstep += one.lockstep_ms;
    on_demand += one.on_demand_ms;
  }
  score.automatic.regret = automatic / best - 1.0;
  score.always_lockstep.regret = lockstep / best - 1.0;
  score.always_on_demand.regret = on_demand / best - 1.0;
  return score;
}

Result<std::vector<SweepCase>> run_sweep(const SweepConfig& config) {
  SplitMix64 random(config.seed);
  const int kinds = config.most_ranks - config.least_ranks + 1;
  std::vector<std::vector<Drawn>> by_ranks(static_cast<std::size_t>(kinds));
  for (int i = 0; i < config.workloads; ++i) {
    const int kind = i % 2 == 0 || kinds == 1 ? 0 : 1 + i / 2 % (kinds - 1);
    HEADRACE_TRY_ASSIGN(Drawn drawn, draw(config.least_ranks + kind, random));
    by_ranks[static_cast<std::size_t>(kind)].push_back(std::move(drawn));
  }
  std::vector<SweepCase> cases;
  for (int kind = 0; kind < kinds; ++kind) {
    std::vector<Drawn>& all = by_ranks[static_cast<std::size_t>(kind)];
    if (all.empty()) {
      continue;
    }
    HEADRACE_TRY(run_ranks_of(config, config.least_ranks + kind, all));
    for (Drawn& drawn : all) {
      cases.push_back(std::move(drawn.described));
    }
  }
  return cases;
}

}  // namespace headrace::replay
