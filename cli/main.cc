#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "balance.h"
#include "bench.h"
#include "info.h"
#include "options.h"
#include "plan.h"
#include "replay.h"

namespace {

/// The deepest sub-command that was given.
const CLI::App* given(const CLI::App* app) {
  const auto chosen = app->get_subcommands();
  return chosen.empty() ? app : given(chosen.front());
}

/// The words that lead to a command.
std::string path_of(const CLI::App* command) {
  const CLI::App* parent = command->get_parent();
  return (parent == nullptr ? "" : path_of(parent) + " ") + command->get_name();
}

/// Names what was given in place of a sub-command, and every option that is missing; CLI11 says
/// only that a sub-command is, or the first option.
int report(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* last = given(&app);
  const std::string missing = headrace::cli::missing_options(*last);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) &&
      !missing.empty()) {
    const std::string path = path_of(last);
    std::fprintf(stderr, "%s needs %s; see %s --help\n", path.c_str(), missing.c_str(),
                 path.c_str());
    return error.get_exit_code();
  }
  const auto extras = last->remaining();
  const auto known = last->get_subcommands([](const CLI::App*) { return true; });
  if (extras.empty() || known.empty() || error.get_exit_code() == 0) {
    return app.exit(error);
  }
  std::string names;
  for (const CLI::App* command : known) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  std::fprintf(stderr, "headrace: unknown sub-command '%s' of %s; there are: %s; see --help\n",
               extras.front().c_str(), last->get_name().c_str(), names.c_str());
  return error.get_exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CLI::App app{"Headrace: a communication engine for fully sharded training", "headrace"};
    app.set_version_flag("--version", HEADRACE_VERSION);
    app.require_subcommand(1);
    headrace::cli::add_info(app);
    headrace::cli::add_balance(app);
    headrace::cli::add_bench(app);
    headrace::cli::add_plan(app);
    headrace::cli::add_replay(app);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return report(app, error);
    }
    return 0;
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "headrace: %s\n", exception.what());
    return 1;
  }
}
