#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "balance/microbatches.h"
#include "balance/prepared_samples.h"
#include "balance/rank_assignment.h"
#include "balance/strategies.h"

namespace headrace {
namespace {

constexpr std::size_t k_no_rank = std::numeric_limits<std::size_t>::max();

/// Samples of each minibatch, ascending, and the rank of every sample where that is decided.
struct Cut {
  std::vector<std::vector<std::size_t>> minibatches;
  std::vector<std::size_t> rank_of;
};

/// Group of each sample, numbered in order of their first sample; every sample alone without ids.
std::vector<std::size_t> groups_of(std::size_t samples, std::span<const std::int64_t> ids) {
  std::vector<std::size_t> groups;
  std::unordered_map<std::int64_t, std::size_t> numbers;
  for (std::size_t sample = 0; sample < samples; ++sample) {
    groups.push_back(ids.empty() ? sample
                                 : numbers.try_emplace(ids[sample], numbers.size()).first->second);
  }
  return groups;
}

Error too_few(std::string_view whose, std::size_t groups, std::size_t minibatches) {
  return operation_error(fmt::format("{} has {} samples (or groups), too few for {} minibatches",
                                     whose, groups, minibatches));
}

/// Cuts `samples`, ascending, into parts of nearly equal numbers of groups and adds them to the
/// minibatches.
Status cut_evenly(std::string_view whose, const std::vector<std::size_t>& samples,
                  const std::vector<std::size_t>& groups,
                  std::vector<std::vector<std::size_t>>& minibatches) {
  std::unordered_map<std::size_t, std::size_t> place;  // of a group among those of `samples`
  for (const std::size_t sample : samples) {
    place.try_emplace(groups[sample], place.size());
  }
  if (place.size() < minibatches.size()) {
    return too_few(whose, place.size(), minibatches.size());
  }
  for (const std::size_t sample : samples) {
    // The minibatch m with place in [m * groups / minibatches, (m + 1) * groups / minibatches).
    const std::size_t m = ((place[groups[sample]] + 1) * minibatches.size() - 1) / place.size();
    minibatches[m].push_back(sample);
  }
  return {};
}

/// As many groups on each rank, levelled over the batch; each rank's samples cut evenly.
Result<Cut> cut_by_rank(std::span<const std::int64_t> lengths, std::size_t minibatches,
                        const std::vector<std::size_t>& groups, const BalanceOptions& options) {
  HEADRACE_TRY_ASSIGN(const PreparedSamples prepared, prepare(lengths, options));
  const PackingProblem problem = prepared.problem(options);
  Cut cut{.minibatches = std::vector<std::vector<std::size_t>>(minibatches),
          .rank_of = std::vector<std::size_t>(lengths.size(), k_no_rank)};
  std::size_t rank = 0;
  for (const auto& pieces : by_equal_differencing(problem, problem.costs)) {
    std::vector<std::size_t> samples;
    for (const std::size_t piece : pieces) {
      const std::size_t sample = prepared.kept.pieces[piece].sample;
      if (cut.rank_of[sample] == k_no_rank) {
        cut.rank_of[sample] = rank;
        samples.push_back(sample);
      }
    }
    HEADRACE_TRY(cut_evenly(fmt::format("rank {}", rank), samples, groups, cut.minibatches));
    ++rank;
  }
  for (std::size_t sample = 0; sample < lengths.size(); ++sample) {
    if (cut.rank_of[sample] == k_no_rank) {  // dropped: the first plan reports it
      cut.minibatches.front().push_back(sample);
    }
  }
  for (auto& samples : cut.minibatches) {
    std::ranges::sort(samples);
  }
  return cut;
}

Result<Cut> cut_batch(std::span<const std::int64_t> lengths, std::size_t minibatches,
                      const BalanceOptions& options) {
  const std::vector<std::size_t> groups = groups_of(lengths.size(), options.groups);
  if (options.strategy == Strategy::verl_native) {
    return cut_by_rank(lengths, minibatches, groups, options);
  }
  Cut cut{.minibatches = std::vector<std::vector<std::size_t>>(minibatches)};
  std::vector<std::size_t> all(lengths.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  HEADRACE_TRY(cut_evenly("the batch", all, groups, cut.minibatches));
  return cut;
}

/// Every value of `values` that belongs to one of the samples; none if there are no values.
std::vector<std::int64_t> of_samples(std::span<const std::int64_t> values,
                                     const std::vector<std::size_t>& samples) {
  std::vector<std::int64_t> result;
  for (const std::size_t sample : values.empty() ? std::vector<std::size_t>() : samples) {
    result.push_back(values[sample]);
  }
  return result;
}

RankPieces pieces_on_their_ranks(const PreparedSamples& prepared,
                                 const std::vector<std::size_t>& samples,
                                 const std::vector<std::size_t>& rank_of, int world_size) {
  RankPieces ranks(static_cast<std::size_t>(world_size));
  for (std::size_t piece = 0; piece < prepared.kept.pieces.size(); ++piece) {
    ranks[rank_of[samples[prepared.kept.pieces[piece].sample]]].push_back(piece);
  }
  return ranks;
}

/// The same plan of the samples at these places of the batch.
BalancePlan in_batch(BalancePlan plan, const std::vector<std::size_t>& samples) {
  for (auto& microbatches : plan.ranks) {
    for (Microbatch& microbatch : microbatches) {
      for (SamplePiece& piece : microbatch.pieces) {
        piece.sample = samples[piece.sample];
      }
    }
  }
  for (std::size_t& sample : plan.oversize) {
    sample = samples[sample];
  }
  return plan;
}

}  // namespace

Result<std::vector<BalancePlan>> plan_batch(std::span<const std::int64_t> lengths,
                                            std::size_t minibatches,
                                            const BalanceOptions& options) {
  if (minibatches < 1) {
    return operation_error("a batch needs at least 1 minibatch, not 0");
  }
  if (minibatches > lengths.size()) {
    return too_few("the batch", lengths.size(), minibatches);
  }
  if (!options.groups.empty() && options.groups.size() != lengths.size()) {
    return operation_error(fmt::format("there are {} groups for {} lengths; every sample needs one",
                                       options.groups.size(), lengths.size()));
  }
  if (!options.labels.empty() && options.labels.size() != lengths.size()) {
    return operation_error(
        fmt::format("there are {} labels for {} lengths", options.labels.size(), lengths.size()));
  }
  HEADRACE_TRY_ASSIGN(const Cut cut, cut_batch(lengths, minibatches, options));
  std::vector<std::int64_t> labels(options.labels.begin(), options.labels.end());
  if (labels.empty()) {
    labels.resize(lengths.size());
    std::iota(labels.begin(), labels.end(), std::int64_t{0});
  }
  std::vector<BalancePlan> plans;
  for (const auto& samples : cut.minibatches) {
    const std::vector<std::int64_t> own_lengths = of_samples(lengths, samples);
    const std::vector<std::int64_t> own_groups = of_samples(options.groups, samples);
    const std::vector<std::int64_t> own_labels = of_samples(labels, samples);
    BalanceOptions own = options;
    own.groups = own_groups;
    own.labels = own_labels;
    if (cut.rank_of.empty()) {
      HEADRACE_TRY_ASSIGN(BalancePlan plan, plan_minibatch(own_lengths, own));
      plans.push_back(in_batch(std::move(plan), samples));
      continue;
    }
    HEADRACE_TRY_ASSIGN(PreparedSamples prepared, prepare(own_lengths, own));
    const Packing packing =
        levelled_packing(prepared.problem(own),
                         pieces_on_their_ranks(prepared, samples, cut.rank_of, own.world_size));
    HEADRACE_TRY_ASSIGN(BalancePlan plan, finish(std::move(prepared), own, packing));
    plans.push_back(in_batch(std::move(plan), samples));
  }
  return plans;
}

}  // namespace headrace
