#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/result.h"
#include "kernel/tiles.h"

namespace headrace {

/// The last job from `from` on that starts at or before `tile`; `first_tile` rises and has one
/// entry a job.
HEADRACE_HOST_DEVICE constexpr unsigned job_of(const unsigned* first_tile, unsigned jobs,
                                               unsigned tile, unsigned from) {
  unsigned end = jobs;
  while (end - from > 1) {
    const unsigned middle = from + (end - from) / 2;
    if (first_tile[middle] <= tile) {
      from = middle;
    } else {
      end = middle;
    }
  }
  return from;
}

/// Jobs of one launch, passed as a kernel parameter. Job j has the tiles [first_tile[j],
/// first_tile[j + 1]): 32 bits, since a tile is a KiB or more of a device's memory.
template <class Job, unsigned capacity>
struct JobTable {
  static constexpr unsigned k_capacity = capacity;

  HEADRACE_HOST_DEVICE unsigned tiles() const { return first_tile[count]; }
  void add(const Job& job) {
    jobs[count] = job;
    first_tile[count + 1] = first_tile[count] + static_cast<unsigned>(job.tiles());
    ++count;
  }

  Job jobs[capacity] = {};
  unsigned first_tile[capacity + 1] = {};
  unsigned count = 0;
};

/// Bytes of parameters that a launch may have, and the few that make a cheap one.
constexpr std::size_t k_launch_parameters = 32764;
constexpr std::size_t k_cheap_parameters = 4096;
/// What a table and the kernel's other parameters take beside the jobs.
constexpr std::size_t k_parameter_overhead = 64;

template <class Job>
constexpr unsigned jobs_in(std::size_t parameter_bytes) {
  return static_cast<unsigned>((parameter_bytes - k_parameter_overhead) /
                               (sizeof(Job) + sizeof(unsigned)));
}
template <class Job>
using CheapTable = JobTable<Job, jobs_in<Job>(k_cheap_parameters)>;
template <class Job>
using LargeTable = JobTable<Job, jobs_in<Job>(k_launch_parameters)>;

template <class Table, class Job, class Launch>
Status launch_table(std::span<const Job> jobs, const Launch& launch) {
  Table table;
  for (const Job& job : jobs) {
    table.add(job);
  }
  return launch(table);
}

/// Calls `launch` with tables of all jobs in their order, as few as hold them; returns at the first
/// error. Every job has a tile at least.
template <class Job, class Launch>
Status in_tables(std::span<const Job> jobs, const Launch& launch) {
  while (jobs.size() > CheapTable<Job>::k_capacity) {
    const std::size_t count = std::min<std::size_t>(jobs.size(), LargeTable<Job>::k_capacity);
    HEADRACE_TRY((launch_table<LargeTable<Job>>(jobs.first(count), launch)));
    jobs = jobs.subspan(count);
  }
  return jobs.empty() ? Status() : launch_table<CheapTable<Job>>(jobs, launch);
}

}  // namespace headrace
