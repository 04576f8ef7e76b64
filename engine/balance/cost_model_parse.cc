#include "balance/cost_model_parse.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "balance/cost_points.h"
#include "balance/model_config.h"
#include "balance/text_input.h"

namespace headrace {
namespace {

constexpr std::size_t k_fewest_coefficients = 2;
constexpr std::size_t k_most_coefficients = 3;

Error nothing_such(const std::string& text, const std::string& why) {
  return operation_error(fmt::format(
      "'{}' is no cost model: {}; give a preset ({}), coefficients as quadratic,linear or "
      "quadratic,linear,per_microbatch, a model's config.json or its folder, or a file of measured "
      "points (tokens,cost a line)",
      text, why, CostModel::preset_names()));
}

Result<CostModel> from_coefficients(const std::string& text) {
  std::vector<double> values;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    const Result<double> value = parse_number(trimmed(rest.substr(0, comma)));
    if (!value) {
      return nothing_such(text, value.error().message);
    }
    values.push_back(*value);
    more = comma != std::string_view::npos;
    rest = more ? rest.substr(comma + 1) : std::string_view();
  }
  if (values.size() < k_fewest_coefficients || values.size() > k_most_coefficients) {
    return nothing_such(text, fmt::format("there are {} coefficients", values.size()));
  }
  values.resize(k_most_coefficients);
  return CostModel::make(values[0], values[1], values[2]);
}

}  // namespace

Result<CostModel> parse_cost_model(const std::string& text) {
  if (Result<CostModel> preset = CostModel::preset(text)) {
    return preset;
  }
  std::error_code ignored;
  if (!std::filesystem::exists(text, ignored)) {
    if (text.find(',') != std::string::npos) {
      return from_coefficients(text);
    }
    return nothing_such(text, "there is no such preset, file or folder");
  }
  if (std::filesystem::is_directory(text, ignored) || text.ends_with(".json")) {
    HEADRACE_TRY_ASSIGN(const ModelShape shape, read_model_config(text));
    return CostModel::from_shape(shape);
  }
  HEADRACE_TRY_ASSIGN(const TextInput input, read_text(text));
  return fit_cost_points(input);
}

}  // namespace headrace
