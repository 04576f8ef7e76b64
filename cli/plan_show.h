#pragma once

#include <CLI/CLI.hpp>

namespace headrace::cli {

/// `headrace plan show --collective C --nodes M --local L [--rank r] [--format text|svg] [...]`:
/// who sends what to whom in which round, as a table or a picture.
void add_plan_show(CLI::App& plan);

}  // namespace headrace::cli
