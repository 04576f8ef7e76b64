#include <nanobind/stl/string.h>

#include <string>

#include "bindings.h"

namespace nb = nanobind;

namespace headrace {
namespace {

const char* python_class(Scope scope) {
  switch (scope) {
    case Scope::operation:
      return "OperationError";
    case Scope::channel:
      return "ChannelError";
    case Scope::peer:
      return "PeerError";
    case Scope::session:
      return "SessionError";
  }
  return "HeadraceError";
}

void raise(const Error& error) {
  // A signal handler that raised (Ctrl-C) has already set the exception that ended the wait.
  if (PyErr_Occurred() != nullptr) {
    return;
  }
  nb::object type = nb::module_::import_("headrace.errors").attr(python_class(error.scope));
  // A wrong call needs its sentence alone; what broke also says where.
  const std::string text = error.scope == Scope::operation ? error.message : error.describe();
  nb::object instance = type(text.c_str(), error.rank, error.native_code);
  PyErr_SetObject(type.ptr(), instance.ptr());
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const ErrorException& exception) {
      raise(exception.error);
    }
  });
}

}  // namespace headrace
