#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "runtime/arena.h"
#include "transport/bootstrap.h"

namespace headrace {

/// What wiring brings from one peer.
struct ShmLink {
  Fd memory;                     ///< to map; invalid for a thread of this process
  std::shared_ptr<Arena> arena;  ///< for a thread of this process: its memory, at the same address
  Fd death;                      ///< readable when the peer's process has ended
};

/// A Unix socket with a random abstract name: nothing of it stays in a file system, and who
/// connects must be the same user and know the peer's secret, which travels with the advertisement.
class ShmListener {
 public:
  static Result<ShmListener> open();

  /// Name and secret, for the advertisement.
  const std::string& address() const { return address_; }

  /// Connects to every lower rank of `peers` and accepts every higher one; passes this rank's
  /// memory and takes theirs. The result is in rank order, empty where a rank is no peer. Ends
  /// within `limit`, with an error that names a rank that did not come.
  Result<std::vector<ShmLink>> wire(int rank, std::span<const int> peers,
                                    std::span<const Advertisement> all, const SharedMemory& memory,
                                    Milliseconds limit);

 private:
  ShmListener(Fd socket, std::string address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  Fd socket_;
  std::string address_;
};

}  // namespace headrace
