#pragma once

namespace headrace {

/// What a transport can do between two ranks; asked when a session is wired, never found out by a
/// failing call.
struct Capability {
  bool get = false;         ///< Channel::get
  bool put = false;         ///< Channel::put
  bool accumulate = false;  ///< Channel::accumulate without the peer's help
  bool processes = false;   ///< ranks may be processes
  bool device_memory = false;

  /// All that on-demand needs of every pair of ranks.
  bool on_demand() const { return get && put && accumulate; }
};

}  // namespace headrace
