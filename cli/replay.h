#pragma once

#include <CLI/CLI.hpp>

namespace headrace::cli {

/// Adds `replay`: the communication of training steps, with compute emulated.
void add_replay(CLI::App& app);

}  // namespace headrace::cli
