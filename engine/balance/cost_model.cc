#include "balance/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace headrace {
namespace {

/// s^2, s and 1: what the three coefficients multiply.
constexpr std::size_t k_terms = 3;
using Terms = std::array<double, k_terms>;

struct Preset {
  std::string_view name;
  double quadratic;
  double linear;
};
constexpr std::array k_presets = {Preset{"1.5B", 1.982, 2.612}, Preset{"7B", 4.348, 8.768}};
constexpr double k_preset_length = 32000.0;

/// Solves the normal equations for the terms in `chosen` (the others are 0) by elimination with
/// pivots. Nothing where the points do not determine them.
std::optional<Terms> least_squares(std::span<const Terms> rows, std::span<const double> values,
                                   unsigned chosen) {
  std::array<std::array<double, k_terms + 1>, k_terms> system{};
  std::array<std::size_t, k_terms> columns{};
  std::size_t size = 0;
  for (std::size_t term = 0; term < k_terms; ++term) {
    if ((chosen >> term & 1U) != 0) {
      columns[size++] = term;
    }
  }
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t j = 0; j < size; ++j) {
        system[i][j] += rows[row][columns[i]] * rows[row][columns[j]];
      }
      system[i][k_terms] += rows[row][columns[i]] * values[row];
    }
  }
  for (std::size_t i = 0; i < size; ++i) {
    std::size_t pivot = i;
    for (std::size_t k = i + 1; k < size; ++k) {
      if (std::abs(system[k][i]) > std::abs(system[pivot][i])) {
        pivot = k;
      }
    }
    if (system[pivot][i] == 0.0) {
      return std::nullopt;
    }
    std::swap(system[i], system[pivot]);
    for (std::size_t k = 0; k < size; ++k) {
      if (k == i) {
        continue;
      }
      const double factor = system[k][i] / system[i][i];
      for (std::size_t j = i; j <= k_terms; ++j) {
        system[k][j] -= factor * system[i][j];
      }
    }
  }
  Terms solution{};
  for (std::size_t i = 0; i < size; ++i) {
    solution[columns[i]] = system[i][k_terms] / system[i][i];
  }
  return solution;
}

double squared_residual(std::span<const Terms> rows, std::span<const double> values,
                        const Terms& solution) {
  double sum = 0.0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    double residual = -values[row];
    for (std::size_t term = 0; term < k_terms; ++term) {
      residual += rows[row][term] * solution[term];
    }
    sum += residual * residual;
  }
  return sum;
}

}  // namespace

Result<CostModel> CostModel::make(double quadratic, double linear, double per_microbatch) {
  for (const auto& [name, value] : {std::pair{"quadratic", quadratic}, std::pair{"linear", linear},
                                    std::pair{"per_microbatch", per_microbatch}}) {
    if (!std::isfinite(value) || value < 0.0) {
      return operation_error(
          fmt::format("the {} coefficient of a cost model must be finite and not negative, not {}",
                      name, value));
    }
  }
  if (quadratic == 0.0 && linear == 0.0) {
    return operation_error(
        "a cost model whose quadratic and linear coefficients are both 0 makes every sample free; "
        "give "
        "one of them a positive value");
  }
  return CostModel(quadratic, linear, per_microbatch);
}

Result<CostModel> CostModel::from_shape(const ModelShape& shape) {
  for (const auto& [name, value] :
       {std::pair{"hidden", shape.hidden}, std::pair{"layers", shape.layers},
        std::pair{"heads", shape.heads}, std::pair{"kv_heads", shape.kv_heads},
        std::pair{"head_size", shape.head_size}, std::pair{"intermediate", shape.intermediate},
        std::pair{"vocabulary", shape.vocabulary}}) {
    if (value < 1) {
      return operation_error(fmt::format("a model shape needs a positive {}, not {}", name, value));
    }
  }
  if (shape.sparse_layers < 0 || shape.sparse_layers > shape.layers ||
      (shape.sparse_layers > 0 && (shape.active_intermediate < 1 || shape.experts < 1))) {
    return operation_error(
        fmt::format("of {} layers {} cannot have {} experts of {} active intermediate size",
                    shape.layers, shape.sparse_layers, shape.experts, shape.active_intermediate));
  }
  constexpr double k_passes = 3.0;        // forward once, backward twice its work
  constexpr double k_multiply_add = 2.0;  // operations of one multiply-add
  const auto hidden = static_cast<double>(shape.hidden);
  const auto layers = static_cast<double>(shape.layers);
  const double query_width =
      static_cast<double>(shape.heads) * static_cast<double>(shape.head_size);
  const double kv_width =
      static_cast<double>(shape.kv_heads) * static_cast<double>(shape.head_size);
  const double projections = hidden * (2.0 * query_width + 2.0 * kv_width);
  const auto sparse = static_cast<double>(shape.sparse_layers);
  const double width = (layers - sparse) * static_cast<double>(shape.intermediate) +
                       sparse * static_cast<double>(shape.active_intermediate);
  const double mlps = hidden * (3.0 * width + sparse * static_cast<double>(shape.experts));
  const double output = hidden * static_cast<double>(shape.vocabulary);
  // Scores and weighted values: two products of s^2 * query_width multiply-adds, half of them
  // masked.
  const double attention = layers * query_width;
  return make(k_passes * k_multiply_add * attention,
              k_passes * k_multiply_add * (layers * projections + mlps + output));
}

Result<CostModel> CostModel::fit(std::span<const CostPoint> points, bool with_microbatch) {
  std::set<std::int64_t> lengths;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].tokens < 1 || !std::isfinite(points[i].cost) || points[i].cost < 0.0) {
      return operation_error(fmt::format(
          "point {} of a cost fit needs a positive length and a finite cost that is not "
          "negative, not {} tokens at {}",
          i, points[i].tokens, points[i].cost));
    }
    lengths.insert(points[i].tokens);
  }
  const std::size_t terms = with_microbatch ? k_terms : k_terms - 1;
  if (lengths.size() < terms) {
    return operation_error(fmt::format(
        "a cost fit needs points at {} distinct lengths or more, not {}", terms, lengths.size()));
  }
  const auto longest = static_cast<double>(*lengths.rbegin());
  std::vector<Terms> rows;
  std::vector<double> values;
  for (const CostPoint& point : points) {
    const double x = static_cast<double>(point.tokens) / longest;
    rows.push_back({x * x, x, 1.0});
    values.push_back(point.cost);
  }
  std::optional<Terms> best;
  double best_residual = 0.0;
  for (unsigned chosen = (1U << terms) - 1; chosen > 0; --chosen) {
    const std::optional<Terms> solution = least_squares(rows, values, chosen);
    if (!solution || std::ranges::any_of(*solution, [](double c) { return c < 0.0; })) {
      continue;
    }
    const double residual = squared_residual(rows, values, *solution);
    if (!best || residual < best_residual) {
      best = solution;
      best_residual = residual;
    }
  }
  if (!best) {
    return operation_error("no cost model fits these points: they are all 0");
  }
  return make((*best)[0] / longest / longest, (*best)[1] / longest, (*best)[2]);
}

Result<CostModel> CostModel::preset(std::string_view name) {
  for (const Preset& preset : k_presets) {
    if (preset.name == name) {
      return make(preset.quadratic / k_preset_length / k_preset_length,
                  preset.linear / k_preset_length);
    }
  }
  return operation_error(
      fmt::format("there is no cost preset '{}'; known are {}", name, preset_names()));
}

std::string CostModel::preset_names() {
  std::string names;
  for (const Preset& preset : k_presets) {
    names += (names.empty() ? "" : ", ") + std::string(preset.name);
  }
  return names;
}

double CostModel::sample(std::int64_t tokens) const {
  const auto s = static_cast<double>(tokens);
  return (quadratic_ * s + linear_) * s;
}

}  // namespace headrace
