#pragma once

#include <optional>
#include <ranges>
#include <string>
#include <string_view>

namespace headrace {

/// The value that to_string calls by this name, if one does.
template <std::ranges::input_range Values>
std::optional<std::ranges::range_value_t<Values>> named(const Values& values,
                                                        std::string_view name) {
  for (const auto value : values) {
    if (name == to_string(value)) {
      return value;
    }
  }
  return std::nullopt;
}

/// The values' names, separated by commas, for an error that lists them.
template <std::ranges::input_range Values>
std::string names_of(const Values& values) {
  std::string names;
  for (const auto value : values) {
    names += names.empty() ? "" : ", ";
    names += to_string(value);
  }
  return names;
}

}  // namespace headrace
