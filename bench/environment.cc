#include "bench/environment.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <string>

#include "kernel/isa.h"

namespace headrace::bench {
namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("model name")) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown";
}

}  // namespace

double rounded(double value) { return std::round(value * 1000) / 1000; }

nlohmann::ordered_json environment() {
  return {{"machine",
           {{"processor", processor()},
            {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
            {"isa", to_string(best_isa())}}},
          {"versions", {{"headrace", HEADRACE_VERSION}, {"compiler", __VERSION__}}}};
}

}  // namespace headrace::bench
