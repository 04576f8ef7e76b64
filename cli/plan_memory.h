#pragma once

#include <CLI/CLI.hpp>

namespace headrace::cli {

/// `headrace plan memory --nodes M --local L --shard-mib S [...] [--json]`: what lockstep takes of
/// a rank's memory, region by region and in closed form, beside stock FSDP2.
void add_plan_memory(CLI::App& plan);

}  // namespace headrace::cli
