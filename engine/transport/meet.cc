#include "transport/meet.h"

#include "runtime/signal.h"

namespace headrace {

Status meet(Transport& transport, Stream& stream, int rank, int world_size,
            std::size_t signals_offset, std::uint64_t round, std::string_view what) {
  const auto signal = [signals_offset](int of) {
    return signals_offset + static_cast<std::size_t>(of) * sizeof(Signal);
  };
  for (int peer = 0; peer < world_size; ++peer) {
    HEADRACE_TRY(transport.channel(peer).signal(stream, signal(rank), round));
  }
  for (int peer = 0; peer < world_size; ++peer) {
    HEADRACE_TRY(transport.channel(peer).wait(stream, signal(peer), round, what));
  }
  return {};
}

}  // namespace headrace
