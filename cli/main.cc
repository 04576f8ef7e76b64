#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "bench.h"
#include "info.h"
#include "plan.h"

int main(int argc, char** argv) {
  try {
    CLI::App app{"Headrace: a communication engine for fully sharded training", "headrace"};
    app.set_version_flag("--version", HEADRACE_VERSION);
    app.require_subcommand(1);
    headrace::cli::add_info(app);
    headrace::cli::add_bench(app);
    headrace::cli::add_plan(app);
    CLI11_PARSE(app, argc, argv);
    return 0;
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "headrace: %s\n", exception.what());
    return 1;
  }
}
