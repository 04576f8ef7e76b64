#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/address_map.h"
#include "plan/interval_memory.h"
#include "plan/schedule_check.h"

namespace headrace {

/// In which dtype the callers hold what is theirs, by parameter, as all programs name it.
struct UserDTypes {
  std::vector<DType> shard;
  std::vector<DType> gradient;
};

/// Error where operations name one parameter's shard or gradient in different dtypes.
Result<UserDTypes> user_dtypes(const Collective& collective);

/// The symbolic memory of all ranks: arena regions, which the collectives share, and the callers'
/// own of each collective.
class WorldMemory {
 public:
  /// `collectives` and `dtypes` outlive this. Programs have passed `program_check`.
  WorldMemory(const Topology& topology, std::span<const Collective> collectives,
              std::span<const UserDTypes> dtypes);

  /// `place` is relative to the node of `rank`; `call` counts the calls of the collective's kind.
  IntervalMemory& at(int rank, const Place& place, std::size_t collective, std::size_t call);
  const AddressMap& map(std::size_t collective) const { return maps_[collective]; }
  /// Element of the unsharded parameter at which the rank's rows start.
  std::size_t first_element(std::size_t collective, std::size_t parameter, int rank) const {
    return first_elements_[collective][parameter][static_cast<std::size_t>(rank)];
  }

  /// Shard and resident hold what the caller gives to use `use` of the collective; by `writer`.
  void fill_shard(int rank, std::size_t collective, std::uint32_t use, Epoch writer);
  /// Gradients likewise; landing and output hold nothing.
  void begin_call(int rank, std::size_t collective, std::uint32_t use, Epoch writer);

 private:
  IntervalMemory& own(int rank, Region region, std::size_t index, std::size_t collective);

  Topology topology_;
  std::span<const Collective> collectives_;
  std::span<const UserDTypes> dtypes_;
  std::vector<AddressMap> maps_;
  std::vector<std::vector<std::vector<std::size_t>>> first_elements_;
  std::vector<std::size_t> user_start_;
  std::size_t arena_start_ = 0;
  std::size_t banks_ = 1;
  std::vector<std::vector<IntervalMemory>> memories_;  ///< [rank]
};

}  // namespace headrace
