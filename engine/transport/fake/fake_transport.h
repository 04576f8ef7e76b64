#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/arena.h"
#include "transport/fake/fault_plan.h"
#include "transport/transport.h"

namespace headrace {

/// Where ranks that are threads of one process find each other's memory.
class FakeHub {
 public:
  explicit FakeHub(int world_size) : memories_(static_cast<std::size_t>(world_size)) {}

  /// Gives this rank's memory and returns everyone's, in rank order; error after `limit`.
  Result<std::vector<std::shared_ptr<Arena>>> meet(int rank, std::shared_ptr<Arena> mine,
                                                   Milliseconds limit);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<Arena>> memories_;
};

/// Ranks as threads of one process, for tests. `faults` says what goes wrong on which lane; an
/// empty plan is a correct transport.
Result<std::unique_ptr<Transport>> make_fake_transport(const TransportConfig& config,
                                                       const Exchange& exchange,
                                                       const std::shared_ptr<FakeHub>& hub,
                                                       const FaultPlan& faults = {});

}  // namespace headrace
