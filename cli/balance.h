#pragma once

#include <CLI/CLI.hpp>

namespace headrace::cli {

void add_balance(CLI::App& app);

}  // namespace headrace::cli
