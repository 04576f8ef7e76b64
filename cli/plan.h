#pragma once

#include <CLI/CLI.hpp>

namespace headrace::cli {

/// `headrace plan check|memory|show`: lockstep plans, computed from integers alone, for any world
/// and on any machine.
void add_plan(CLI::App& app);

}  // namespace headrace::cli
