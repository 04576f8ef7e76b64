#pragma once

#include <source_location>
#include <string>

namespace headrace {

/// What an error breaks, from the smallest to the largest. The bindings map each to one Python
/// class.
enum class Scope {
  operation,  ///< this call was wrong; the session is as it was
  channel,    ///< the link to one peer does not work
  peer,       ///< a peer died, was silent, left or reported a failure; the session is over
  session,    ///< this rank's session is over
};

const char* to_string(Scope scope);

/// A value, never thrown below the bindings. `message` is a sentence that a user can act on.
struct Error {
  Scope scope = Scope::operation;
  std::string message;
  int rank = -1;        ///< the rank at fault, or -1
  int native_code = 0;  ///< errno or a library's code, 0 where there is none
  std::source_location where = std::source_location::current();

  /// The message with native code, file and line.
  std::string describe() const;
};

Error operation_error(std::string message,
                      std::source_location where = std::source_location::current());
/// `errno` is read before anything else and its text is added to the message.
Error system_error(Scope scope, std::string message,
                   std::source_location where = std::source_location::current());
Error peer_error(int rank, std::string message,
                 std::source_location where = std::source_location::current());
Error session_error(std::string message,
                    std::source_location where = std::source_location::current());

}  // namespace headrace
