#pragma once

#include <nanobind/nanobind.h>

#include "base/result.h"

namespace headrace {

/// Carries an engine error through nanobind; becomes the class in headrace.errors that its scope
/// names.
struct ErrorException {
  Error error;
};

void bind_errors(nanobind::module_& module);
void bind_balance(nanobind::module_& module);
void bind_session(nanobind::module_& module);

/// The value, or its error thrown for the translator. Call with or without the GIL.
template <class T>
T unwrap(Result<T> result) {
  if (!result) {
    throw ErrorException{std::move(result).error()};
  }
  return std::move(result).value();
}
inline void unwrap(Status status) {
  if (!status) {
    throw ErrorException{std::move(status).error()};
  }
}

}  // namespace headrace
