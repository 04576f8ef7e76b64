#include "balance/portable_math.h"

#include <cmath>
#include <numbers>

namespace headrace {
namespace {

/// ln 2 in two parts: the first has enough trailing zeros that its product with an exponent is
/// exact.
constexpr double k_ln2_high = 0x1.62e42feep-1;
constexpr double k_ln2_low = 0x1.a39ef35793c76p-33;
/// Terms of the series after which the next is below one unit in the last place.
constexpr int k_log_terms = 12;
constexpr int k_exp_terms = 14;

}  // namespace

// ln m = 2 atanh((m - 1) / (m + 1)) for a mantissa m in [sqrt(1/2), sqrt(2)).
double portable_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < std::numbers::sqrt2 / 2.0) {
    mantissa *= 2.0;
    --exponent;
  }
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  double series = 0.0;
  for (int term = k_log_terms; term >= 0; --term) {
    series = series * (s * s) + 1.0 / (2.0 * term + 1.0);
  }
  return exponent * k_ln2_high + (exponent * k_ln2_low + 2.0 * s * series);
}

// e^x = 2^n e^r with |r| <= ln(2) / 2.
double portable_exp(double x) {
  const double n = std::floor(x / std::numbers::ln2 + 0.5);
  const double r = (x - n * k_ln2_high) - n * k_ln2_low;
  double series = 1.0;
  for (int term = k_exp_terms; term > 0; --term) {
    series = 1.0 + series * r / term;
  }
  return std::ldexp(series, static_cast<int>(n));
}

}  // namespace headrace
