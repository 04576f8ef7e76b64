#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "balance/packing.h"
#include "balance/rank_assignment.h"

namespace headrace {

/// First-fit decreasing of one rank's pieces, costliest microbatch first: memory peaks at once, and
/// steps of ranks match as well as any order allows. At least `min_microbatches` of them, filled as
/// levelled_microbatches does where first-fit needs fewer.
Bins first_fit_microbatches(const PackingProblem& problem, const std::vector<std::size_t>& pieces);

/// One rank's pieces in `count` microbatches under the cap, or in as many as first-fit needs where
/// that is more; their costs levelled, costliest first. The last are empty where pieces are too
/// few.
Bins levelled_microbatches(const PackingProblem& problem, const std::vector<std::size_t>& pieces,
                           std::size_t count);

/// One piece a microbatch, costliest first, and fillers up to `min_microbatches`.
Bins single_microbatches(const PackingProblem& problem, const std::vector<std::size_t>& pieces);

/// Levelled microbatches of every rank, as many on each: the largest of the ranks' first-fit
/// counts, `min_microbatches` at the least.
Packing levelled_packing(const PackingProblem& problem, const RankPieces& ranks);

/// As few microbatches by differencing alone, as many on every rank, as hold the cap: sometimes
/// better levelled than `levelled_packing`, sometimes more of them. Nothing where the search would
/// take too long.
std::optional<Packing> differenced_packing(const PackingProblem& problem, const RankPieces& ranks);

/// Single microbatches of every rank. In lockstep never costlier than any other order of them.
Packing single_packing(const PackingProblem& problem, const RankPieces& ranks);

/// The same microbatches, the costliest with several pieces split in two for as long as fewer than
/// `count` are filled. At most as many as there are.
Bins split_into(const PackingProblem& problem, Bins microbatches, std::size_t count);

/// How many microbatches of a rank are not fillers.
std::size_t filled(const Bins& microbatches);

}  // namespace headrace
