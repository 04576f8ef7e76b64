#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::cli {

/// One thing that was tried on this machine. `detail` says what was seen, or why it does not work
/// and what would help.
struct Check {
  std::string name;
  bool ok = false;
  std::string detail;
  bool needed = true;  ///< false where something slower stands in for it
};

/// A way to move bytes. Available only if every needed check passed.
struct TransportReport {
  std::string name;
  std::string carries;
  bool available = false;
  std::string reason;  ///< why not; empty where available
  std::vector<Check> checks;
};

struct Machine {
  std::string cpu;
  std::string kernel;
  int cores_usable = 0;  ///< of this process's affinity mask
  int cores_online = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t memory_available_bytes = 0;
  std::vector<Check> instructions;
  std::string host_kernels;  ///< the instruction set that the host kernels use here
  std::vector<Check> huge_pages;
  std::vector<TransportReport> transports;
};

/// Tries everything; leaves nothing behind. Takes milliseconds.
Machine probe_machine();

}  // namespace headrace::cli
