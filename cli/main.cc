#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  CLI::App app{"Headrace: a communication engine for fully sharded training", "headrace"};
  app.set_version_flag("--version", HEADRACE_VERSION);
  app.require_subcommand(0, 1);
  CLI11_PARSE(app, argc, argv);
  return 0;
}
