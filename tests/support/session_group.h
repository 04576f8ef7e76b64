#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "session/session.h"
#include "support/peer_group.h"

namespace headrace::testing {

/// Makes this rank's session; a fatal failure of the test where it cannot.
Result<std::unique_ptr<Session>> connect(const Rank& self, const ModelSpec& model,
                                         SessionConfig config = {});

/// Shards of one rank, in fp32, dealt from unsharded values: `values[g][p]` has rows * row_elements
/// elements.
class Shards {
 public:
  Shards(const OnDemandPlan& plan, int rank,
         const std::vector<std::vector<std::vector<float>>>& values);
  std::vector<std::vector<ShardSource>> sources() const;

 private:
  std::vector<std::vector<std::vector<float>>> shards_;
};

/// Landings of one group and their bits as gathered.
class Landings {
 public:
  Landings(const OnDemandPlan& plan, std::size_t group);
  const std::vector<void*>& addresses() const { return addresses_; }
  /// The unsharded parameter, pad rows left out, as fp32.
  std::vector<float> values(std::size_t parameter) const;

 private:
  const OnDemandPlan& plan_;
  std::size_t group_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<void*> addresses_;
};

/// Distinct small integers, which fp32 sums and bf16 hold exactly.
std::vector<std::vector<std::vector<float>>> integer_values(const ModelSpec& model, int seed);

}  // namespace headrace::testing
