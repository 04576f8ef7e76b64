#pragma once

#include <vector>

#include "machine.h"

namespace headrace::cli {

/// Each system facility that ranks as processes of one host stand on, tried for real: private
/// shared memory, its passing over a Unix socket, signals across mappings, news of a peer's death.
std::vector<Check> check_shm();

/// Whether 2 MiB pages can be had: reserved ones, and transparent ones for private and for shared
/// memory.
std::vector<Check> check_huge_pages();

}  // namespace headrace::cli
