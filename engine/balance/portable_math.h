#pragma once

namespace headrace {

/// Natural logarithm and exponential from additions, products and divisions alone, so that they
/// give the same bits on every platform, which the C library's do not. Within a few units in the
/// last place. `portable_log` needs a positive, finite x; `portable_exp` |x| <= 700.
double portable_log(double x);
double portable_exp(double x);

}  // namespace headrace
