#pragma once

namespace headrace::cli {

/// Where standard output goes.
struct Terminal {
  int columns = 80;      ///< of the terminal, or 80 where it is none
  bool colours = false;  ///< a terminal, and NO_COLOR is not set
};

Terminal standard_output();

}  // namespace headrace::cli
