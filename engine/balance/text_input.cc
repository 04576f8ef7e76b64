#include "balance/text_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <system_error>

namespace headrace {
namespace {

constexpr std::size_t k_read_bytes = 1 << 20;
constexpr std::size_t k_most_quoted = 40;
constexpr std::string_view k_blanks = " \t\r\n";
constexpr std::string_view k_byte_order_mark = "\xEF\xBB\xBF";

std::string_view without_mark(std::string_view text) {
  return text.substr(text.starts_with(k_byte_order_mark) ? k_byte_order_mark.size() : 0);
}

struct Close {
  void operator()(std::FILE* file) const {
    if (file != stdin) {
      (void)std::fclose(file);
    }
  }
};

}  // namespace

Result<TextInput> read_text(const std::string& path) {
  const bool standard = path == "-";
  TextInput input{.name = standard ? "standard input" : path, .text = {}};
  const std::unique_ptr<std::FILE, Close> file(standard ? stdin : std::fopen(path.c_str(), "rb"));
  if (!file) {
    return system_error(Scope::operation, fmt::format("cannot open {}", path));
  }
  std::size_t size = 0;
  while (true) {
    input.text.resize(size + k_read_bytes);
    const std::size_t got = std::fread(input.text.data() + size, 1, k_read_bytes, file.get());
    size += got;
    if (got < k_read_bytes) {
      break;
    }
  }
  if (std::ferror(file.get()) != 0) {
    return system_error(Scope::operation, fmt::format("cannot read {}", input.name));
  }
  input.text.resize(size);
  return input;
}

std::string excerpt(std::string_view text) {
  return text.size() <= k_most_quoted ? fmt::format("'{}'", text)
                                      : fmt::format("'{}...'", text.substr(0, k_most_quoted));
}

Result<std::int64_t> parse_whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    return operation_error(fmt::format("{} does not fit 63 bits", excerpt(text)));
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    return operation_error(fmt::format("{} is not a whole number", excerpt(text)));
  }
  return value;
}

Result<double> parse_number(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return operation_error(fmt::format("{} is not a finite number", excerpt(text)));
  }
  return value;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(k_blanks);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(k_blanks) + 1 - begin);
}

Lines::Lines(std::string_view text) : rest_(without_mark(text)) {}

std::optional<Line> Lines::next() {
  while (!rest_.empty()) {
    const std::size_t end = rest_.find('\n');
    const std::string_view line = trimmed(rest_.substr(0, end));
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    ++number_;
    if (!line.empty()) {
      return Line{.number = number_, .text = line};
    }
  }
  return std::nullopt;
}

CsvRecords::CsvRecords(std::string_view text) : text_(without_mark(text)) {}

/// Fields keep their storage from record to record.
std::string& CsvRecords::start_field() {
  if (used_ == record_.fields.size()) {
    record_.fields.emplace_back();
  }
  std::string& field = record_.fields[used_++];
  field.clear();
  return field;
}

Status CsvRecords::read_quoted(std::string& field) {
  const std::size_t opened = line_;
  for (++at_; at_ < text_.size(); ++at_) {
    const char letter = text_[at_];
    if (letter == '"') {
      if (at_ + 1 == text_.size() || text_[at_ + 1] != '"') {
        ++at_;
        return {};
      }
      ++at_;
    }
    line_ += letter == '\n' ? 1 : 0;
    field += letter;
  }
  return operation_error(fmt::format("line {}: a quote is opened and never closed", opened));
}

Result<const CsvRecord*> CsvRecords::next() {
  while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) {
    line_ += text_[at_++] == '\n' ? 1 : 0;
  }
  if (at_ == text_.size()) {
    return nullptr;
  }
  used_ = 0;
  record_.line = line_;
  for (bool more = true; more;) {
    std::string& field = start_field();
    if (at_ < text_.size() && text_[at_] == '"') {
      HEADRACE_TRY(read_quoted(field));
    }
    const std::size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
    field += trimmed(text_.substr(at_, end - at_));
    more = end < text_.size() && text_[end] == ',';
    line_ += end < text_.size() && !more ? 1 : 0;
    at_ = std::min(end + 1, text_.size());
  }
  record_.fields.resize(used_);
  return &record_;
}

Result<std::size_t> column_of(const CsvRecord& header, std::string_view name) {
  const auto found = std::ranges::find(header.fields, name);
  if (found == header.fields.end()) {
    return operation_error(fmt::format("line {}: there is no column '{}'; there are: {}",
                                       header.line, name, joined(header.fields)));
  }
  return static_cast<std::size_t>(found - header.fields.begin());
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace headrace
