#include "info.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "machine.h"

namespace headrace::cli {
namespace {

nlohmann::ordered_json to_json(const std::vector<Check>& checks) {
  auto array = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    array.push_back({{"name", check.name},
                     {"ok", check.ok},
                     {"needed", check.needed},
                     {"detail", check.detail}});
  }
  return array;
}

nlohmann::ordered_json to_json(const Machine& machine) {
  auto transports = nlohmann::ordered_json::array();
  for (const TransportReport& transport : machine.transports) {
    transports.push_back({{"name", transport.name},
                          {"carries", transport.carries},
                          {"available", transport.available},
                          {"reason", transport.reason},
                          {"checks", to_json(transport.checks)}});
  }
  return {{"version", HEADRACE_VERSION},
          {"cpu", machine.cpu},
          {"kernel", machine.kernel},
          {"cores_usable", machine.cores_usable},
          {"cores_online", machine.cores_online},
          {"memory_bytes", machine.memory_bytes},
          {"memory_available_bytes", machine.memory_available_bytes},
          {"instructions", to_json(machine.instructions)},
          {"host_kernels", machine.host_kernels},
          {"huge_pages", to_json(machine.huge_pages)},
          {"transports", std::move(transports)}};
}

void print_checks(const char* indent, const std::vector<Check>& checks) {
  for (const Check& check : checks) {
    fmt::print("{}{:<12} {:<4} {}\n", indent, check.name, check.ok ? "yes" : "no", check.detail);
  }
}

void print(const Machine& machine) {
  constexpr double k_gib = 1024.0 * 1024.0 * 1024.0;
  fmt::print("headrace {} on {}\n", HEADRACE_VERSION, machine.kernel);
  fmt::print("  cores          {} usable of {} online, {}\n", machine.cores_usable,
             machine.cores_online, machine.cpu);
  fmt::print("  memory         {:.1f} GiB, {:.1f} GiB available\n",
             static_cast<double>(machine.memory_bytes) / k_gib,
             static_cast<double>(machine.memory_available_bytes) / k_gib);
  fmt::print("  instructions  ");
  for (const Check& check : machine.instructions) {
    fmt::print(" {}{}", check.ok ? "" : "no ", check.name);
  }
  fmt::print(" (host kernels use {})\n  huge pages\n", machine.host_kernels);
  print_checks("    ", machine.huge_pages);
  fmt::print("  transports\n");
  for (const TransportReport& transport : machine.transports) {
    fmt::print("    {:<12} {:<4} {}{}{}\n", transport.name, transport.available ? "yes" : "no",
               transport.carries, transport.reason.empty() ? "" : ": ", transport.reason);
    print_checks("      ", transport.checks);
  }
}

}  // namespace

void add_info(CLI::App& app) {
  CLI::App* info =
      app.add_subcommand("info", "What this machine can do, and why not what it cannot");
  auto json = std::make_shared<bool>(false);
  info->add_flag("--json", *json, "One JSON object");
  info->callback([json] {
    const Machine machine = probe_machine();
    if (*json) {
      fmt::print("{}\n", to_json(machine).dump(2));
    } else {
      print(machine);
    }
  });
}

}  // namespace headrace::cli
