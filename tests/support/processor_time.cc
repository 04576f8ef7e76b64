#include "support/processor_time.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace headrace::testing {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

ProcessorTime::Used ProcessorTime::now() {
  Used used;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    used.own += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  // User, nice, system, idle, waiting, interrupts, soft interrupts, stolen.
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  const double tick = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  double ticks = 0;
  for (int field = 0; field < 8 && file >> ticks; ++field) {
    used.all += ticks * tick;
    used.busy += field == 3 || field == 4 ? 0.0 : ticks * tick;
  }
  return used;
}

double ProcessorTime::share_of_others() const {
  const Used end = now();
  return (end.busy - begin_.busy - (end.own - begin_.own)) / (end.all - begin_.all);
}

}  // namespace headrace::testing
