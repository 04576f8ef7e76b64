#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace headrace {

/// The `count`-th operation of a lane, counted from 1; count 0 is none.
struct Epoch {
  std::uint32_t lane = 0;
  std::uint32_t count = 0;

  bool operator==(const Epoch&) const = default;
};

/// What an operation knew when it ran: itself and all that happened before it.
struct Snapshot {
  std::shared_ptr<std::vector<std::uint32_t>> known;
  Epoch self;
};

/// The vector clock of one lane. Snapshots share the vector until the lane learns something new, so
/// that taking one costs nothing.
class LaneClock {
 public:
  LaneClock(std::uint32_t lane, std::size_t lanes)
      : known_(std::make_shared<std::vector<std::uint32_t>>(lanes, 0)), lane_(lane) {}

  /// Begins the lane's next operation.
  Epoch step() { return {lane_, ++count_}; }
  Epoch now() const { return {lane_, count_}; }
  Snapshot snapshot() const { return {known_, now()}; }
  /// Whether the operation happened before what this lane does next.
  bool knows(Epoch epoch) const {
    return epoch.count <= (epoch.lane == lane_ ? count_ : (*known_)[epoch.lane]);
  }
  /// What the snapshot's operation knew happened before what this lane does next.
  void learn(const Snapshot& snapshot);
  /// As above, for an operation that passes on nothing but itself.
  void learn(Epoch epoch);

 private:
  std::vector<std::uint32_t>& writable();

  std::shared_ptr<std::vector<std::uint32_t>> known_;
  std::uint32_t lane_;
  std::uint32_t count_ = 0;
};

}  // namespace headrace
