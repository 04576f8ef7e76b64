#include "balance/lengths.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "balance/json_input.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;
using Lengths = std::vector<std::int64_t>;

constexpr std::string_view k_parquet_magic = "PAR1";

Error at(const TextInput& input, std::size_t line, const std::string& what) {
  return operation_error(fmt::format("{}, line {}: {}", input.name, line, what));
}

Error parquet_error(const std::string& path, const std::string& field) {
  return operation_error(
      fmt::format("{0} is a Parquet file; pipe it through Python: python -m headrace.lengths {0} "
                  "--column {1} | "
                  "headrace balance --lengths -",
                  path, field.empty() ? "input_ids" : field));
}

Result<std::int64_t> at_least_one(std::int64_t length) {
  if (length < 1) {
    return operation_error(fmt::format("{} is no length; a sample has 1 token or more", length));
  }
  return length;
}

Result<std::int64_t> length_of(std::string_view text) {
  HEADRACE_TRY_ASSIGN(const std::int64_t length, parse_whole_number(text));
  return at_least_one(length);
}

Result<Lengths> from_numbers(const TextInput& input) {
  Lengths lengths;
  Lines lines(input.text);
  while (const std::optional<Line> line = lines.next()) {
    std::string_view rest = line->text;
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
      const Result<std::int64_t> length = length_of(word);
      if (!length) {
        return at(input, line->number, length.error().message);
      }
      lengths.push_back(*length);
      rest = trimmed(rest.substr(word.size()));
    }
  }
  return lengths;
}

/// What one JSON line says of one field, without building the rest of it.
class FieldReader : public nlohmann::json_sax<Json> {
 public:
  explicit FieldReader(std::string_view field) : field_(field) {}

  bool found() const { return found_; }
  std::int64_t length() const { return length_; }
  /// The field is there, but neither a whole number nor a list.
  bool wrong_kind() const { return wrong_kind_; }

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return std::in_range<std::int64_t>(value) ? number(static_cast<std::int64_t>(value)) : other();
  }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool string(string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool start_object(std::size_t) override {
    if (depth_ > 0) {
      other();
    }
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      wanted_ = name == field_;
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (std::exchange(wanted_, false)) {
      counting_ = true;
      found_ = true;
      length_ = 0;
    } else {
      other();
    }
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    counting_ = counting_ && depth_ > 1;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  static constexpr int k_item_depth = 2;  ///< inside the object and its list

  bool number(std::int64_t value) {
    if (depth_ == 0 || std::exchange(wanted_, false)) {
      found_ = true;
      length_ = value;
      return true;
    }
    return other();
  }
  bool other() {
    if (counting_ && depth_ == k_item_depth) {
      ++length_;
    }
    wrong_kind_ = wrong_kind_ || std::exchange(wanted_, false);
    return true;
  }

  std::string_view field_;
  std::int64_t length_ = 0;
  int depth_ = 0;
  bool found_ = false;
  bool wanted_ = false;
  bool counting_ = false;
  bool wrong_kind_ = false;
};

/// Why a line has no length.
std::string field_problem(std::string_view line, const std::string& field) {
  const Json value = parse_json(line);
  if (!value.is_object()) {
    return fmt::format("{} is neither a whole number nor an object with the field '{}'",
                       excerpt(line), field);
  }
  if (value.contains(field)) {
    return fmt::format("'{}' is {}; a length must be a whole number, or a list to count", field,
                       excerpt(value.at(field).dump()));
  }
  std::vector<std::string> there;
  for (const auto& [name, ignored] : value.items()) {
    there.push_back(name);
  }
  return fmt::format("there is no field '{}'; there are: {}; choose one with --field", field,
                     joined(there));
}

Result<Lengths> from_json_lines(const TextInput& input, const std::string& field) {
  Lengths lengths;
  Lines lines(input.text);
  while (const std::optional<Line> line = lines.next()) {
    FieldReader reader(field);
    if (!Json::sax_parse(line->text, &reader)) {
      return at(input, line->number, excerpt(line->text) + " is not JSON");
    }
    if (!reader.found() || reader.wrong_kind()) {
      return at(input, line->number, field_problem(line->text, field));
    }
    const Result<std::int64_t> length = at_least_one(reader.length());
    if (!length) {
      return at(input, line->number, length.error().message);
    }
    lengths.push_back(*length);
  }
  return lengths;
}

Result<Lengths> from_csv(const TextInput& input, const std::string& field) {
  const auto named = [&input](const Error& error) {
    return operation_error(fmt::format("{}, {}", input.name, error.message));
  };
  CsvRecords records(input.text);
  Lengths lengths;
  std::optional<std::size_t> column;
  while (true) {
    const Result<const CsvRecord*> next = records.next();
    if (!next) {
      return named(next.error());
    }
    if (*next == nullptr) {
      return lengths;
    }
    const CsvRecord& record = **next;
    if (!column) {
      const Result<std::size_t> found = column_of(record, field);
      if (!found) {
        const char* advice = parse_number(record.fields.front())
                                 ? "the first line must name the columns"
                                 : "choose one with --field";
        return operation_error(
            fmt::format("{}, {}; {}", input.name, found.error().message, advice));
      }
      column = *found;
      continue;
    }
    if (record.fields.size() <= *column) {
      return at(input, record.line,
                fmt::format("there are {} fields, and the column '{}' is number {}",
                            record.fields.size(), field, *column + 1));
    }
    const Result<std::int64_t> length = length_of(record.fields[*column]);
    if (!length) {
      return at(input, record.line, length.error().message);
    }
    lengths.push_back(*length);
  }
}

Result<Lengths> parse_any(const TextInput& input, const std::string& field) {
  const std::optional<Line> first = Lines(input.text).next();
  if (!first) {
    return Lengths();
  }
  const std::string name = field.empty() ? k_length_field : field;
  if (first->text.front() == '{') {
    return from_json_lines(input, name);
  }
  if (first->text.front() == '[') {
    return at(input, first->number,
              excerpt(first->text) + " is a list; give one number or one JSON object a line");
  }
  if (!field.empty() || input.name.ends_with(".csv") ||
      first->text.find(',') != std::string_view::npos) {
    return from_csv(input, name);
  }
  return from_numbers(input);
}

}  // namespace

Result<Lengths> parse_lengths(const TextInput& input, const std::string& field) {
  if (input.text.starts_with(k_parquet_magic)) {
    return parquet_error(input.name, field);
  }
  HEADRACE_TRY_ASSIGN(Lengths lengths, parse_any(input, field));
  if (lengths.empty()) {
    return operation_error(
        fmt::format("there is no length in {}; give a number, a JSON object or a CSV record a line",
                    input.name));
  }
  return lengths;
}

Result<Lengths> read_lengths(const std::string& path, const std::string& field) {
  if (path.ends_with(".parquet")) {
    return parquet_error(path, field);
  }
  HEADRACE_TRY_ASSIGN(const TextInput input, read_text(path));
  return parse_lengths(input, field);
}

}  // namespace headrace
