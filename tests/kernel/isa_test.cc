#include "kernel/isa.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace headrace {
namespace {

bool cpuinfo_has(const std::string& flag) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (line.starts_with("flags")) {
      std::istringstream words(line);
      std::string word;
      while (words >> word) {
        if (word == flag) {
          return true;
        }
      }
      return false;
    }
  }
  return false;
}

TEST(IsaTest, best_is_what_the_kernel_lists) {
  Isa expected = Isa::scalar;
  if (cpuinfo_has("avx2") && cpuinfo_has("fma")) {
    expected = cpuinfo_has("avx512f") ? Isa::avx512 : Isa::avx2;
  }
  EXPECT_STREQ(to_string(best_isa()), to_string(expected));
}

TEST(IsaTest, each_set_contains_the_one_before) {
  EXPECT_LT(Isa::scalar, Isa::avx2);
  EXPECT_LT(Isa::avx2, Isa::avx512);
}

}  // namespace
}  // namespace headrace
