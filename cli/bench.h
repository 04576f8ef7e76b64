#pragma once

#include <CLI/CLI.hpp>

namespace headrace::cli {

/// `headrace bench gather|push --ranks N --mib M [--dtype D] [--rounds K] [--json]`: our operation
/// beside the packed baseline and the physical limit, in one run, by forked ranks on this machine.
void add_bench(CLI::App& app);

}  // namespace headrace::cli
