#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/result.h"

namespace headrace::cli {

/// A check of an option's text: a whole number from `least` to `most`. Its message names the text
/// and the range; CLI11 puts the option's name in front.
CLI::Validator whole_number(std::int64_t least,
                            std::int64_t most = std::numeric_limits<std::int64_t>::max());

/// A check of an option's text by the engine's own parser, whose message is kept.
template <class Parse>
CLI::Validator parsed_by(Parse parse, const std::string& name) {
  return {[parse](const std::string& text) {
            const auto result = parse(text);
            return result ? std::string() : result.error().message;
          },
          name};
}

/// The options that a command needs and was not given, with commas between them.
std::string missing_options(const CLI::App& command);

/// The value, or its error thrown for `main`, which prints it. A wrong request needs its sentence
/// alone; what broke also says where.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result) {
    const Error& error = result.error();
    throw std::runtime_error(error.scope == Scope::operation ? error.message : error.describe());
  }
  return std::move(result).value();
}

}  // namespace headrace::cli
