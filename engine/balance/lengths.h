#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "balance/text_input.h"
#include "base/result.h"

namespace headrace {

/// The field or column that holds a sample's length unless the user names another.
inline constexpr const char* k_length_field = "length";

/// The lengths of samples, in tokens and in the order of the text, which is one of
/// - whole numbers between blanks or line ends;
/// - JSON lines: numbers, or objects with `field`, a number or a list whose items are counted;
/// - comma-separated values whose first line names the columns, with a column `field`.
/// An empty `field` means `length`. Errors name input, line and text: nothing there, not a whole
/// number, below 1, no such field or column (lists those there are), Parquet (says how to pipe it).
Result<std::vector<std::int64_t>> parse_lengths(const TextInput& input, const std::string& field);

/// Of a file, or of standard input where the path is "-". Parquet is refused by name too.
Result<std::vector<std::int64_t>> read_lengths(const std::string& path, const std::string& field);

}  // namespace headrace
