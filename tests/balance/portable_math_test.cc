#include "balance/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>

#include "balance/support.h"

namespace headrace {
namespace {

TEST(PortableMath, agrees_with_the_c_library) {
  balance_test::Random random(1);
  constexpr double k_few_units = 4e-16;
  for (int round = 0; round < 10'000; ++round) {
    const double exponent = 1400.0 * random.unit() - 700.0;
    EXPECT_NEAR(portable_exp(exponent) / std::exp(exponent), 1.0, k_few_units) << exponent;
    const double x = std::exp(exponent);
    EXPECT_NEAR(portable_log(x), std::log(x), std::abs(std::log(x)) * k_few_units) << x;
    const double near_one = 0.5 + random.unit();
    EXPECT_NEAR(portable_log(near_one), std::log(near_one), k_few_units) << near_one;
  }
}

TEST(PortableMath, is_exact_where_the_result_is_simple) {
  EXPECT_EQ(portable_log(1.0), 0.0);
  EXPECT_EQ(portable_exp(0.0), 1.0);
}

}  // namespace
}  // namespace headrace
