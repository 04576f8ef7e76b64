#pragma once

#include <cassert>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"

namespace headrace {

/// A value or the error that took its place. Reading the wrong one is a programming error (assert).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  explicit operator bool() const { return state_.index() == 0; }

  T& value() & {
    assert(*this);
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(*this);
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(*this);
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    assert(!*this);
    return *std::get_if<1>(&state_);
  }
  Error&& error() && {
    assert(!*this);
    return std::move(*std::get_if<1>(&state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// Success or an error. `Status()` is success.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  explicit operator bool() const { return !error_.has_value(); }

  const Error& error() const& {
    assert(error_);
    return *error_;
  }
  Error&& error() && {
    assert(error_);
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace headrace

#define HEADRACE_CONCAT_(a, b) a##b
#define HEADRACE_CONCAT(a, b) HEADRACE_CONCAT_(a, b)

/// Returns the error of `expression` (a Status or Result) from the calling function.
#define HEADRACE_TRY(expression)                                 \
  do {                                                           \
    if (auto headrace_status = (expression); !headrace_status) { \
      return std::move(headrace_status).error();                 \
    }                                                            \
  } while (false)

/// `HEADRACE_TRY_ASSIGN(auto x, f())`: x is f()'s value, or f()'s error is returned.
#define HEADRACE_TRY_ASSIGN(declaration, expression)                       \
  auto HEADRACE_CONCAT(headrace_result_, __LINE__) = (expression);         \
  if (!HEADRACE_CONCAT(headrace_result_, __LINE__)) {                      \
    return std::move(HEADRACE_CONCAT(headrace_result_, __LINE__)).error(); \
  }                                                                        \
  declaration = std::move(HEADRACE_CONCAT(headrace_result_, __LINE__)).value()
