#include "plan/svg.h"

#include <fmt/format.h>

#include <iterator>

namespace headrace {
namespace {

constexpr int k_font_size = 12;
constexpr int k_baseline = 16;  ///< of a text, below the top of its line

std::string escaped(std::string_view words) {
  std::string result;
  for (const char letter : words) {
    switch (letter) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += letter;
    }
  }
  return result;
}

}  // namespace

void Svg::box(const Box& box, std::string_view attributes, std::string_view title) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect x=\"{:.6g}\" y=\"{:.6g}\" width=\"{:.6g}\" height=\"{:.6g}\" {}", box.x,
                 box.y, box.width, box.height, attributes);
  body_ += title.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(title));
}

void Svg::text(double x, double y, std::string_view words, std::string_view anchor) {
  fmt::format_to(std::back_inserter(body_),
                 "<text x=\"{:.6g}\" y=\"{:.6g}\" text-anchor=\"{}\">{}</text>\n", x,
                 y + k_baseline, anchor, escaped(words));
}

void Svg::hatching(std::string_view name) {
  fmt::format_to(
      std::back_inserter(body_),
      "<defs><pattern id=\"{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" "
      "stroke=\"#999\"/></pattern></defs>\n",
      name);
}

std::string Svg::document(double width, double height) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.6g}\" height=\"{1:.6g}\" "
      "viewBox=\"0 0 {0:.6g} {1:.6g}\" font-family=\"sans-serif\" font-size=\"{2}\">\n{3}</svg>\n",
      width, height, k_font_size, body_);
}

}  // namespace headrace
