#include "options.h"

#include <fmt/format.h>

#include "balance/text_input.h"

namespace headrace::cli {

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const std::string range = most == std::numeric_limits<std::int64_t>::max()
                                ? fmt::format("{} or more", least)
                                : fmt::format("{} to {}", least, most);
  return {[least, most, range](const std::string& text) -> std::string {
            const Result<std::int64_t> value = parse_whole_number(text);
            if (!value) {
              return fmt::format("{}; give {}", value.error().message, range);
            }
            return *value >= least && *value <= most
                       ? std::string()
                       : fmt::format("{} is out of range; give {}", *value, range);
          },
          range};
}

std::string missing_options(const CLI::App& command) {
  std::string names;
  for (const CLI::Option* option :
       command.get_options([](const CLI::Option* o) { return o->get_required(); })) {
    if (option->count() == 0) {
      names += (names.empty() ? "" : ", ") + option->get_name();
    }
  }
  return names;
}

}  // namespace headrace::cli
