#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/liveness.h"
#include "runtime/waiter.h"
#include "support/data_memory.h"
#include "transport/fake/fault_plan.h"
#include "transport/transport.h"

namespace headrace::testing {

/// Where the ranks of a test that are processes get their transports, and where their data lies, in
/// place of `shm` and this process's own memory. Called in each rank's process.
struct OtherTransport {
  std::string name;
  std::function<Result<std::unique_ptr<Transport>>(const TransportConfig&, const Exchange&)> make;
  std::function<std::unique_ptr<DataMemory>()> memory;
  std::function<std::string()> why_not;  ///< why it cannot run here; empty where it can
};

/// How the ranks of a test run. Processes are forked; a test body is the same in all three.
enum class Backend { fake, shm_threads, shm_processes };
void PrintTo(Backend backend, std::ostream* stream);

/// Backends that this build can run: the thread sanitizer cannot follow forked processes.
std::vector<Backend> backends();

struct PeerGroup {
  Backend backend = Backend::fake;
  std::shared_ptr<const OtherTransport> other{};  ///< only with `shm_processes`
  int world_size = 2;
  int local_ranks = 0;             ///< of each node; 0: all ranks are on one node
  FaultPlan faults;                ///< only with `fake`
  std::set<int> expected_to_die;   ///< only with `shm_processes`: ranks that end by a signal
  std::set<int> expected_to_stop;  ///< only with `shm_processes`: ranks that stop; killed when all
                                   ///< others are done
  Milliseconds limit{60'000};  ///< for the whole test; then it fails, and what still runs is killed
  std::size_t memory_bytes = 1 << 16;
  std::size_t control_bytes = 0;
  LivenessConfig liveness{.interval = Milliseconds(10)};
  WaitConfig wait;
};

/// The backend and the number of ranks.
void PrintTo(const PeerGroup& group, std::ostream* stream);

/// Skips the running test, which must then return, where such ranks cannot run here.
void skip_unless_runnable(const PeerGroup& group);

/// Makes a rank's transport; pass the configuration through after changing what a test wants
/// changed.
using MakeTransport = std::function<Result<std::unique_ptr<Transport>>(const TransportConfig&)>;

/// One rank of a test.
struct Rank {
  int rank;
  int world_size;
  TransportConfig config;  ///< as the group was asked for
  MakeTransport make;
  std::function<std::unique_ptr<DataMemory>()> memory;

  Result<std::unique_ptr<Transport>> transport() const { return make(config); }
};

/// Runs the body on every rank at once and returns when all are done. A failed expectation on any
/// rank, an end that was not expected, and a rank that is not done in time fail the test.
void run_ranks(const PeerGroup& group, const std::function<void(const Rank&)>& body);

}  // namespace headrace::testing
