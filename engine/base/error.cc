#include "base/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace headrace {

const char* to_string(Scope scope) {
  switch (scope) {
    case Scope::operation:
      return "operation";
    case Scope::channel:
      return "channel";
    case Scope::peer:
      return "peer";
    case Scope::session:
      return "session";
  }
  return "unknown";
}

std::string Error::describe() const {
  std::string_view file = where.file_name();
  if (const auto slash = file.rfind("engine/"); slash != std::string_view::npos) {
    file.remove_prefix(slash);
  }
  const std::string code = native_code != 0 ? fmt::format(", code {}", native_code) : "";
  return fmt::format("{} [{} error{}, {}:{}]", message, to_string(scope), code, file, where.line());
}

Error operation_error(std::string message, std::source_location where) {
  return Error{.scope = Scope::operation, .message = std::move(message), .where = where};
}

Error system_error(Scope scope, std::string message, std::source_location where) {
  const int code = errno;
  message += fmt::format(": {}", std::strerror(code));
  return Error{.scope = scope, .message = std::move(message), .native_code = code, .where = where};
}

Error peer_error(int rank, std::string message, std::source_location where) {
  return Error{.scope = Scope::peer, .message = std::move(message), .rank = rank, .where = where};
}

Error session_error(std::string message, std::source_location where) {
  return Error{.scope = Scope::session, .message = std::move(message), .where = where};
}

}  // namespace headrace
