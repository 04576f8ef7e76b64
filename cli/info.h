#pragma once

#include <CLI/CLI.hpp>

namespace headrace::cli {

/// `headrace info [--json]`: what this machine can do, and why not what it cannot. Always ends with
/// 0.
void add_info(CLI::App& app);

}  // namespace headrace::cli
