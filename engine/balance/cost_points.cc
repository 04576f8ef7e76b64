#include "balance/cost_points.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "balance/json_input.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;
using Points = std::vector<CostPoint>;

constexpr const char* k_tokens = "tokens";
constexpr const char* k_cost = "cost";
constexpr std::size_t k_lengths_with_microbatch = 3;

Result<CostPoint> point_of(std::string_view tokens, std::string_view cost) {
  CostPoint point;
  HEADRACE_TRY_ASSIGN(point.tokens, parse_whole_number(tokens));
  HEADRACE_TRY_ASSIGN(point.cost, parse_number(cost));
  return point;
}

Result<CostPoint> point_of_json(std::string_view line) {
  const Json object = parse_json(line);
  if (!object.is_object() || !object.contains(k_tokens) || !object.contains(k_cost)) {
    return operation_error(
        fmt::format("{} is no JSON object with '{}' and '{}'", excerpt(line), k_tokens, k_cost));
  }
  return point_of(object.at(k_tokens).dump(), object.at(k_cost).dump());
}

Result<Points> from_json_lines(const TextInput& input) {
  Points points;
  Lines lines(input.text);
  while (const std::optional<Line> line = lines.next()) {
    const Result<CostPoint> point = point_of_json(line->text);
    if (!point) {
      return operation_error(
          fmt::format("{}, line {}: {}", input.name, line->number, point.error().message));
    }
    points.push_back(*point);
  }
  return points;
}

Result<Points> from_csv(const TextInput& input) {
  Points points;
  CsvRecords records(input.text);
  std::size_t tokens = 0;
  std::size_t cost = 1;
  bool first = true;
  const auto named = [&input](const std::string& what) {
    return operation_error(fmt::format("{}, {}", input.name, what));
  };
  while (true) {
    const Result<const CsvRecord*> next = records.next();
    if (!next) {
      return named(next.error().message);
    }
    if (*next == nullptr) {
      return points;
    }
    const CsvRecord& record = **next;
    if (std::exchange(first, false) && !parse_number(record.fields.front())) {
      for (const auto& [name, column] : {std::pair{k_tokens, &tokens}, std::pair{k_cost, &cost}}) {
        const Result<std::size_t> found = column_of(record, name);
        if (!found) {
          return named(found.error().message);
        }
        *column = *found;
      }
      continue;
    }
    if (record.fields.size() <= std::max(tokens, cost)) {
      return named(fmt::format("line {}: a point needs {} and {}, not {} field{}", record.line,
                               k_tokens, k_cost, record.fields.size(),
                               record.fields.size() == 1 ? "" : "s"));
    }
    const Result<CostPoint> point = point_of(record.fields[tokens], record.fields[cost]);
    if (!point) {
      return named(fmt::format("line {}: {}", record.line, point.error().message));
    }
    points.push_back(*point);
  }
}

}  // namespace

Result<Points> parse_cost_points(const TextInput& input) {
  const std::optional<Line> first = Lines(input.text).next();
  const bool json = first && first->text.front() == '{';
  HEADRACE_TRY_ASSIGN(Points points, json ? from_json_lines(input) : from_csv(input));
  if (points.empty()) {
    return operation_error(
        fmt::format("there is no measured point in {}; give tokens,cost a line", input.name));
  }
  return points;
}

Result<CostModel> fit_cost_points(const TextInput& input) {
  HEADRACE_TRY_ASSIGN(const Points points, parse_cost_points(input));
  std::set<std::int64_t> lengths;
  for (const CostPoint& point : points) {
    lengths.insert(point.tokens);
  }
  const Result<CostModel> model =
      CostModel::fit(points, lengths.size() >= k_lengths_with_microbatch);
  if (!model) {
    return operation_error(fmt::format("{}: {}", input.name, model.error().message));
  }
  return *model;
}

}  // namespace headrace
