#include <nanobind/nanobind.h>

#include "bindings.h"
#include "runtime/freed_pages.h"

NB_MODULE(_engine, module) {
  // Objects of a script's globals outlive the module at exit: no leak, and no user's business.
  nanobind::set_leak_warnings(false);
  module.doc() = "The Headrace engine: addresses, sizes and streams as integers; no torch.";
  module.attr("__version__") = HEADRACE_VERSION;
  headrace::bind_errors(module);
  headrace::bind_balance(module);
  headrace::bind_session(module);
  module.def("keep_freed_pages", &headrace::keep_freed_pages);
}
