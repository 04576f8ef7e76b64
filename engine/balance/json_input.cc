#include "balance/json_input.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int k_most_nesting = 512;

}  // namespace

Json parse_json(std::string_view text) {
  bool too_deep = false;
  const auto keep = [&too_deep](int depth, Json::parse_event_t, const Json&) {
    too_deep = too_deep || depth > k_most_nesting;
    return !too_deep;
  };
  Json value = Json::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep) {
    value = Json(Json::value_t::discarded);
  }
  return value;
}

}  // namespace headrace
