#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

/// The sizes of a decoder with gated MLPs and grouped-query attention that decide its work.
/// In a mixture of experts `sparse_layers` of the layers send each token to some of `experts`
/// experts, whose intermediate sizes add up to `active_intermediate`, shared ones included; the
/// other layers have an MLP of `intermediate`.
struct ModelShape {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocabulary = 0;
  std::int64_t sparse_layers = 0;
  std::int64_t active_intermediate = 0;
  std::int64_t experts = 0;

  bool operator==(const ModelShape&) const = default;
};

/// One measurement: what a microbatch with a single sample of so many tokens took, in any unit.
struct CostPoint {
  std::int64_t tokens = 0;
  double cost = 0.0;
};

/// What training on samples costs, attention not crossing samples: quadratic * s^2 + linear * s for
/// a sample of s tokens, plus per_microbatch for each microbatch that holds a sample. The unit is
/// that of the coefficients; plans depend on ratios alone. Double throughout, and the same bits on
/// every platform.
class CostModel {
 public:
  /// Error unless all are finite and not negative and one of the first two is positive.
  static Result<CostModel> make(double quadratic, double linear, double per_microbatch = 0.0);

  /// Floating-point operations of forward and backward (three times forward), causal attention
  /// counted half, embedding look-up, norms and activations not counted, the output projection
  /// counted.
  static Result<CostModel> from_shape(const ModelShape& shape);

  /// Least squares with coefficients that are not negative. Needs points at as many distinct
  /// lengths as there are coefficients: two, or three with `with_microbatch`.
  static Result<CostModel> fit(std::span<const CostPoint> points, bool with_microbatch = false);

  /// Published fits, in their own unit: "1.5B" 1.982 x^2 + 2.612 x and "7B" 4.348 x^2 + 8.768 x, x
  /// = s / 32000.
  static Result<CostModel> preset(std::string_view name);
  /// Their names, with commas between them.
  static std::string preset_names();

  double sample(std::int64_t tokens) const;
  double quadratic() const { return quadratic_; }
  double linear() const { return linear_; }
  double per_microbatch() const { return per_microbatch_; }

  bool operator==(const CostModel&) const = default;

 private:
  CostModel(double quadratic, double linear, double per_microbatch)
      : quadratic_(quadratic), linear_(linear), per_microbatch_(per_microbatch) {}

  double quadratic_;
  double linear_;
  double per_microbatch_;
};

}  // namespace headrace
