#pragma once

#include <CLI/CLI.hpp>

namespace headrace::cli {

/// `headrace plan check --local L --nodes A:B [--json]`: makes every reduce-scatter plan of nodes
/// in [A, B], wave widths up to L, up to 32 transfers a round and both gradient modes, plays the
/// accepted ones through with 1 to 4 passes, and counts. Ends with 1 where an accepted one is
/// wrong.
void add_plan_check(CLI::App& plan);

}  // namespace headrace::cli
