#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace headrace {

/// What a rank shows its peers about itself, in its shared memory. Zero-initialised memory is a
/// valid page.
struct LivenessPage {
  enum State : std::uint32_t { starting = 0, running, failed, left };
  static constexpr std::size_t k_reason_bytes = 1024;

  std::atomic<std::uint64_t> heartbeat;
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> culprit;  ///< with `failed`: the rank at fault
  /// 1 + the rank that this one waits for, 0 where it waits for none; stays after a wait that
  /// failed.
  std::atomic<std::int32_t> awaited;
  char reason[k_reason_bytes];  ///< with `failed`: written once, before the state
};

struct LivenessConfig {
  Milliseconds interval{50};     ///< between two heartbeats and looks at the peers
  Milliseconds silence{20'000};  ///< a peer whose heartbeat stands still this long is reported
  /// A gap this long between two looks is this process's own pause (stopped, suspended) and is
  /// nobody's silence.
  Milliseconds own_pause{1'000};
};

/// One peer as this rank sees it.
struct LivenessPeer {
  int rank = -1;
  LivenessPage* page = nullptr;
  /// Readable when the peer's process has ended: a pidfd, or a socket whose other end it holds. May
  /// be invalid.
  Fd death;
};

/// Watches the peers from a thread of its own, which takes no lock that the caller holds and needs
/// no interpreter. The first failure seen is kept for ever, and shown on the own page, so that it
/// also reaches ranks that do not watch the culprit.
class Liveness {
 public:
  /// Marks the own page as running and starts to watch.
  static Result<std::unique_ptr<Liveness>> start(int rank, LivenessPage* page,
                                                 std::vector<LivenessPeer> peers,
                                                 LivenessConfig config);
  /// Shows on the page of a rank that could not start why it did not: its peers, which are wired
  /// already, learn it at their first look.
  static void refuse(int rank, LivenessPage* page, const Error& error);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  /// The failure of any rank, this one included; an atomic load where there is none.
  Status check() const;
  /// As check, after a look at the peers' pages now: what a rank did after it had failed reaches
  /// nobody who asks this afterwards unnoticed.
  Status check_pages() const;
  /// Whether the peer has left in good order. What it signalled before leaving is visible to who
  /// sees this.
  bool has_left(int peer) const;

  /// Shows every peer which rank this one waits for, until the wait has succeeded.
  void show_wait(int peer);
  void show_no_wait();
  /// Whom a wait for `peer` comes down to: the last in the chain of ranks that wait for each other.
  /// `peer` itself where it waits for nobody, or they wait in a circle.
  int last_awaited(int peer) const;

  /// Shows every peer that this rank's session is over, and why; keeps it as this rank's own
  /// failure too, unless an earlier one is known, which then is what peers are told.
  void fail(const Error& error);
  /// Shows every peer that this rank left in good order. Nothing after a failure.
  void leave();

 private:
  struct State;
  explicit Liveness(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace headrace
