#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace headrace {

/// What users hand in as JSON: members in their order. Discarded where the text is not JSON, or
/// nests deeper than any input of ours by far: writing or copying such a value overflows the stack.
nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace headrace
