#include <nanobind/nanobind.h>

#include "bindings.h"

NB_MODULE(_engine, module) {
  module.doc() = "The Headrace engine: addresses, sizes and streams as integers; no torch.";
  module.attr("__version__") = HEADRACE_VERSION;
  headrace::bind_errors(module);
  headrace::bind_balance(module);
}
