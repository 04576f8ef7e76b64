#pragma once

#include <string>
#include <string_view>

namespace headrace {

/// A picture in the making, as a complete SVG document: boxes and words, in pixels from the top
/// left.
class Svg {
 public:
  struct Box {
    double x = 0.0;
    double y = 0.0;
    double width = 0.0;
    double height = 0.0;
  };

  /// `attributes` say how it looks: fill="..." stroke="...". Where `title` is not empty, a browser
  /// shows it over the box.
  void box(const Box& box, std::string_view attributes, std::string_view title = {});
  /// In a line that begins at y; anchor is start, middle or end.
  void text(double x, double y, std::string_view words, std::string_view anchor = "start");
  /// Defines `name` for fill="url(#name)": slanted lines.
  void hatching(std::string_view name);
  std::string document(double width, double height) const;

 private:
  std::string body_;
};

}  // namespace headrace
