#pragma once

#include <memory>

#include "transport/transport.h"

namespace headrace {

/// Ranks as processes (or threads) of one host. Each rank's memory is a memfd, passed to its peers
/// over private Unix sockets that check the user; it has no name, and goes when the last rank does.
Result<std::unique_ptr<Transport>> make_shm_transport(const TransportConfig& config,
                                                      const Exchange& exchange);

/// What `shm` can do on this machine, or why it cannot.
Result<Capability> probe_shm();

}  // namespace headrace
