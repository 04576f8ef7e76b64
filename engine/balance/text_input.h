#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

/// What users hand in as text: the pieces that readers of lengths, points and configurations share.

/// A file and its text; `name` is what errors call it.
struct TextInput {
  std::string name;
  std::string text;
};

/// All of a file, or of standard input where the path is "-". Error that names the path and why.
Result<TextInput> read_text(const std::string& path);

/// The text in quotes, cut where it is long, for messages.
std::string excerpt(std::string_view text);

/// The whole of `text` as a whole number or as a finite number. The error quotes it.
Result<std::int64_t> parse_whole_number(std::string_view text);
Result<double> parse_number(std::string_view text);

std::string_view trimmed(std::string_view text);

struct Line {
  std::size_t number = 0;  ///< from 1
  std::string_view text;   ///< without blanks around it; never empty
};

/// The lines of a text that are not blank. The text must outlive it.
class Lines {
 public:
  explicit Lines(std::string_view text);
  std::optional<Line> next();

 private:
  std::string_view rest_;
  std::size_t number_ = 0;
};

struct CsvRecord {
  std::size_t line = 0;  ///< where it begins, from 1
  std::vector<std::string> fields;
};

/// The records of comma-separated values (RFC 4180: a field in double quotes may hold commas, line
/// ends and doubled quotes); blank lines are left out. The text must outlive it.
class CsvRecords {
 public:
  explicit CsvRecords(std::string_view text);
  /// Valid until the next call; nullptr at the end. Error where a quote is never closed.
  Result<const CsvRecord*> next();

 private:
  std::string& start_field();
  Status read_quoted(std::string& field);

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  std::size_t used_ = 0;
  CsvRecord record_;
};

/// Where `name` stands among a CSV header's fields. Error that lists the columns there are.
Result<std::size_t> column_of(const CsvRecord& header, std::string_view name);

/// Names with commas between them.
std::string joined(const std::vector<std::string>& names);

}  // namespace headrace
