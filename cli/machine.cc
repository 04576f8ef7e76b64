#include "machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "kernel/isa.h"
#include "shm_checks.h"
#include "transport/shm/shm_transport.h"
#if HEADRACE_CUDA
#include "transport/cuda/cuda_transport.h"
#endif

namespace headrace::cli {
namespace {

/// The text behind `key :` in a file of /proc; empty where there is none.
std::string proc_field(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const auto colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos) {
      const auto begin = line.find_first_not_of(" \t", colon + 1);
      return begin == std::string::npos ? "" : line.substr(begin);
    }
  }
  return "";
}

/// A field such as "MemTotal: 123 kB", in bytes; 0 where it is absent.
std::int64_t memory_field(const std::string& key) {
  const std::string text = proc_field("/proc/meminfo", key);
  return text.empty() ? 0 : std::strtoll(text.c_str(), nullptr, 10) * 1024;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

std::vector<Check> instructions() {
  std::vector<Check> found;
  const auto add = [&](const char* name, bool has) {
    found.push_back({name, has, has ? "this processor has it" : "this processor lacks it"});
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  add("avx2", __builtin_cpu_supports("avx2") != 0);
  add("fma", __builtin_cpu_supports("fma") != 0);
  add("avx512f", __builtin_cpu_supports("avx512f") != 0);
  add("avx512bw", __builtin_cpu_supports("avx512bw") != 0);
  add("avx512bf16", __builtin_cpu_supports("avx512bf16") != 0);
#elif defined(__aarch64__)
  add("neon", true);
#endif
  return found;
}

// What the backend itself says, beside the single facilities that it stands on.
Check wiring() {
  const auto capability = probe_shm();
  if (!capability) {
    return {"wiring", false, capability.error().message};
  }
  return {"wiring", capability->on_demand(), "the engine's own memory and socket can be made"};
}

TransportReport shm() {
  TransportReport report{"shm", "processes of one host", true, "", check_shm()};
  report.checks.push_back(wiring());
  for (const Check& check : report.checks) {
    if (check.needed && !check.ok) {
      report.available = false;
      report.reason += (report.reason.empty() ? "" : "; ") + check.name + ": " + check.detail;
    }
  }
  return report;
}

/// A backend that this version does not contain, and whether the machine would have a use for it.
TransportReport absent(std::string name, std::string carries, const char* hardware,
                       std::initializer_list<const char*> devices) {
  const bool found = std::any_of(devices.begin(), devices.end(), [](const char* path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  });
  std::string reason =
      std::string("not in this version; this machine has ") + (found ? "" : "no ") + hardware;
  return {std::move(name), std::move(carries), false, std::move(reason), {}};
}

TransportReport cuda() {
  const char* carries = "GPUs of one node, or processes sharing one GPU";
#if HEADRACE_CUDA
  const auto capability = probe_cuda();
  return {"cuda",
          carries,
          static_cast<bool>(capability),
          capability ? "" : capability.error().message,
          {}};
#else
  TransportReport report =
      absent("cuda", carries, "NVIDIA GPU", {"/dev/nvidiactl", "/dev/nvidia0"});
  report.reason += " (it was built without a CUDA compiler)";
  return report;
#endif
}

}  // namespace

Machine probe_machine() {
  Machine machine;
  machine.cpu = proc_field("/proc/cpuinfo", "model name");
  utsname names{};
  if (uname(&names) == 0) {
    machine.kernel = std::string(names.sysname) + " " + names.release + " " + names.machine;
  }
  machine.cores_usable = usable_cores();
  machine.cores_online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  machine.memory_bytes = memory_field("MemTotal");
  machine.memory_available_bytes = memory_field("MemAvailable");
  machine.instructions = instructions();
  machine.host_kernels = to_string(best_isa());
  machine.huge_pages = check_huge_pages();
  machine.transports = {
      {"fake", "ranks as threads of one process, for tests", true, "", {}},
      shm(),
      cuda(),
      absent("ucx", "GPU or host memory across hosts", "RDMA device", {"/sys/class/infiniband"}),
      absent("nccl", "the rail of a GPU cluster", "NVIDIA GPU", {"/dev/nvidiactl", "/dev/nvidia0"}),
  };
  return machine;
}

}  // namespace headrace::cli
