#include "balance/plan_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "balance/plan_timeline.h"
#include "plan/svg.h"

namespace headrace {
namespace {

constexpr double k_row = 20.0;
constexpr double k_line = 24.0;
constexpr double k_margin = 16.0;
constexpr double k_label = 72.0;
constexpr double k_width = 900.0;  ///< of the longer mode's time
constexpr const char* k_waiting = "waiting";
constexpr int k_first_hue = 205;
constexpr int k_second_hue = 30;

/// Draws one mode, its title at `top`, and returns where it ends.
double draw(Svg& svg, const BalancePlan& plan, Mode mode, double scale, double top) {
  const Prediction& predicted = prediction(plan, mode);
  svg.text(k_margin, top,
           fmt::format("{}: predicted time {:.4g}, {:.1f} % of it waiting{}", to_string(mode),
                       predicted.makespan, 100.0 * predicted.bubble,
                       mode == auto_mode(plan) ? " (recommended)" : ""));
  const std::vector<std::vector<Span>> ranks = timeline(plan, mode);
  double y = top + k_line;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank, y += k_row) {
    svg.text(k_margin, y, fmt::format("rank {}", rank));
    const auto box = [&](double begin, double end) {
      return Svg::Box{.x = k_margin + k_label + begin * scale,
                      .y = y,
                      .width = (end - begin) * scale,
                      .height = k_row - 2.0};
    };
    const auto wait = [&](double begin, double end) {
      if (end > begin) {
        svg.box(box(begin, end), fmt::format("fill=\"url(#{})\"", k_waiting), k_waiting);
      }
    };
    double now = 0.0;
    for (const Span& span : ranks[rank]) {
      wait(now, span.begin);
      const Microbatch& microbatch = plan.ranks[rank][span.microbatch];
      svg.box(box(span.begin, span.end),
              fmt::format("fill=\"hsl({},60%,75%)\" stroke=\"#333\"",
                          span.microbatch % 2 == 0 ? k_first_hue : k_second_hue),
              fmt::format("microbatch {}: {} samples, {} tokens, cost {:.4g}", span.microbatch,
                          microbatch.pieces.size(), microbatch.tokens, microbatch.cost));
      now = span.end;
    }
    wait(now, predicted.makespan);
  }
  return y + k_margin;
}

}  // namespace

std::string plan_svg(const BalancePlan& plan) {
  const double longest = std::max(plan.lockstep.makespan, plan.on_demand.makespan);
  const double scale = longest > 0.0 ? k_width / longest : 0.0;
  Svg svg;
  svg.hatching(k_waiting);
  svg.text(k_margin, k_margin,
           fmt::format("{}: {} tokens on {} ranks, at most {} tokens a microbatch",
                       to_string(plan.strategy), plan.tokens, plan.world_size(), plan.cap));
  double end = k_margin + k_line;
  for (const Mode mode : {Mode::lockstep, Mode::on_demand}) {
    end = draw(svg, plan, mode, scale, end);
  }
  return svg.document(2.0 * k_margin + k_label + k_width, end);
}

}  // namespace headrace
