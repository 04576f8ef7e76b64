#include "kernel/job_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

struct Job {
  unsigned id = 0;
  std::size_t length = 1;
  std::size_t tiles() const { return length; }
};

std::vector<Job> jobs_of(unsigned count) {
  std::vector<Job> jobs;
  for (unsigned id = 0; id < count; ++id) {
    jobs.push_back({id, 1 + id * 7 % 5});
  }
  return jobs;
}

TEST(JobTableTest, each_tile_belongs_to_the_job_that_it_was_counted_for) {
  for (const unsigned count : {1U, 2U, 3U, 8U, 20U}) {
    JobTable<Job, 20> table;
    std::vector<unsigned> owner;
    for (const Job& job : jobs_of(count)) {
      table.add(job);
      owner.insert(owner.end(), job.length, job.id);
    }
    ASSERT_EQ(table.tiles(), owner.size());
    for (unsigned tile = 0; tile < table.tiles(); ++tile) {
      // From any job that is not past the tile's.
      for (unsigned from = 0; from <= owner[tile]; ++from) {
        ASSERT_EQ(job_of(table.first_tile, table.count, tile, from), owner[tile]);
      }
    }
  }
}

TEST(JobTableTest, tables_hold_all_jobs_in_their_order_in_as_few_launches_as_fit) {
  constexpr unsigned k_cheap = CheapTable<Job>::k_capacity;
  constexpr unsigned k_large = LargeTable<Job>::k_capacity;
  static_assert(sizeof(CheapTable<Job>) <= k_cheap_parameters);
  static_assert(sizeof(LargeTable<Job>) <= k_launch_parameters);
  const struct {
    unsigned jobs;
    std::size_t launches;
  } cases[] = {{0, 0},
               {1, 1},
               {k_cheap, 1},
               {k_cheap + 1, 1},
               {k_large, 1},
               {k_large + 1, 2},
               {2 * k_large + k_cheap, 3}};
  for (const auto& [count, launches] : cases) {
    const std::vector<Job> jobs = jobs_of(count);
    std::vector<unsigned> seen;
    std::size_t calls = 0;
    const Status status = in_tables(std::span<const Job>(jobs), [&](const auto& table) -> Status {
      ++calls;
      for (unsigned j = 0; j < table.count; ++j) {
        seen.push_back(table.jobs[j].id);
      }
      return {};
    });
    EXPECT_TRUE(status);
    EXPECT_EQ(calls, launches) << count << " jobs";
    ASSERT_EQ(seen.size(), count);
    for (unsigned id = 0; id < count; ++id) {
      ASSERT_EQ(seen[id], id);
    }
  }
}

TEST(JobTableTest, a_failed_launch_ends_it) {
  const std::vector<Job> jobs = jobs_of(3 * LargeTable<Job>::k_capacity);
  int calls = 0;
  const Status status = in_tables(std::span<const Job>(jobs), [&](const auto&) -> Status {
    ++calls;
    return operation_error("no device");
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "no device");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace headrace
