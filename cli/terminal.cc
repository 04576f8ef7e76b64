#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace headrace::cli {

Terminal standard_output() {
  Terminal terminal;
  if (isatty(STDOUT_FILENO) != 1) {
    return terminal;
  }
  const char* no_colour = std::getenv("NO_COLOR");  // https://no-color.org
  terminal.colours = no_colour == nullptr || *no_colour == '\0';
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    terminal.columns = size.ws_col;
  }
  return terminal;
}

}  // namespace headrace::cli
