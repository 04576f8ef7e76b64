#include "plan/schedule_svg.h"

#include <fmt/format.h>

#include <string>

#include "plan/bruck.h"
#include "plan/latin_square.h"
#include "plan/svg.h"

namespace headrace {
namespace {

constexpr int k_box = 24;
constexpr int k_half_box = k_box / 2;
constexpr int k_gap = 16;
constexpr int k_label = 96;

Svg::Box box_at(int x, int y) {
  return {
      .x = static_cast<double>(x), .y = static_cast<double>(y), .width = k_box, .height = k_box};
}

void node_box(Svg& picture, int x, int y, int node, int nodes, bool bold) {
  picture.box(box_at(x, y),
              fmt::format("fill=\"hsl({},65%,{}%)\" stroke=\"#333\" stroke-width=\"{}\"",
                          360 * node / nodes, bold ? 70 : 88, bold ? 2 : 1));
  picture.text(x + k_half_box, y, std::to_string(node), "middle");
}

void empty_box(Svg& picture, int x, int y) {
  picture.box(box_at(x, y), "fill=\"none\" stroke=\"#bbb\"");
}

}  // namespace

std::string all_gather_svg(const Topology& topology) {
  const int nodes = topology.nodes();
  const std::vector<BruckRound> rounds = bruck_rounds(nodes, 0);
  const int column = nodes * k_box + k_gap;
  Svg picture;
  picture.text(k_gap, k_gap, fmt::format("Recursive doubling on one rail ({} nodes)", nodes));
  const int head = k_gap + k_box;
  for (int node = 0; node < nodes; ++node) {
    picture.text(k_label + node * column, head, fmt::format("node {}", node));
  }
  for (std::size_t row = 0; row <= rounds.size(); ++row) {
    const int y = head + k_box + static_cast<int>(row) * (k_box + k_gap);
    const int before = row == 0 ? 0 : rounds[row - 1].first_received;
    const int held = row == 0 ? 1 : before + rounds[row - 1].slots;
    picture.text(k_gap, y,
                 row == 0 ? "start" : fmt::format("round {} (+{})", row - 1, held - before));
    for (int node = 0; node < nodes; ++node) {
      for (int slot = 0; slot < held; ++slot) {
        node_box(picture, k_label + node * column + slot * k_box, y, (node + slot) % nodes, nodes,
                 slot >= before);
      }
    }
  }
  const int rows = static_cast<int>(rounds.size()) + 1;
  return picture.document(k_label + nodes * column + k_gap,
                          head + k_box + rows * (k_box + k_gap) + k_gap);
}

std::string reduce_scatter_svg(const WavePlan& plan, int destination_node) {
  const Topology& topology = plan.topology();
  const LatinSquare square(topology);
  const int locals = topology.local_ranks();
  const int grid = k_label + locals * k_box + k_gap;
  Svg picture;
  picture.text(k_gap, k_gap, fmt::format("Partials of nodes, placed on node {}", destination_node));
  const int head = k_gap + k_box;
  for (std::size_t at = 0; at < plan.waves().size(); ++at) {
    const Wave& wave = plan.waves()[at];
    const int left = k_gap + static_cast<int>(at) * grid;
    picture.text(left, head, fmt::format("wave {}", at));
    for (int sub_slice = 0; sub_slice < locals; ++sub_slice) {
      picture.text(left + k_label + sub_slice * k_box + k_half_box, head,
                   fmt::format("s{}", sub_slice), "middle");
    }
    for (int local = 0; local < locals; ++local) {
      const int y = head + (local + 1) * k_box;
      picture.text(left, y, fmt::format("local rank {}", local));
      std::vector<int> holders(static_cast<std::size_t>(locals), -1);
      for (int contributor = wave.first; contributor < wave.first + wave.contributors;
           ++contributor) {
        holders[static_cast<std::size_t>(square.sub_slice(local, contributor))] =
            square.source(destination_node, contributor);
      }
      for (int sub_slice = 0; sub_slice < locals; ++sub_slice) {
        const int x = left + k_label + sub_slice * k_box;
        const int node = holders[static_cast<std::size_t>(sub_slice)];
        if (node < 0) {
          empty_box(picture, x, y);
        } else {
          node_box(picture, x, y, node, topology.nodes(), node == destination_node);
        }
      }
    }
  }
  return picture.document(k_gap + static_cast<int>(plan.waves().size()) * grid,
                          head + (locals + 1) * k_box + k_gap);
}

}  // namespace headrace
