#include "plan/schedule_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "plan/bruck.h"
#include "plan/latin_square.h"

namespace headrace {
namespace {

template <class... Values>
void print(std::string& text, fmt::format_string<Values...> format, Values&&... values) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Values>(values)...);
}

std::string slots(int first, int count) { return fmt::format("[{}, {})", first, first + count); }

/// The nodes whose shards `count` slots of a node hold.
std::string shards(const Topology& topology, int node, int first, int count) {
  std::string text;
  for (int slot = first; slot < first + count; ++slot) {
    print(text, "{}{}", text.empty() ? "" : " ", (node + slot) % topology.nodes());
  }
  return text;
}

std::string headline(const char* name, const Topology& topology) {
  return fmt::format("{} on {} node{} of {} rank{}", name, topology.nodes(),
                     topology.nodes() == 1 ? "" : "s", topology.local_ranks(),
                     topology.local_ranks() == 1 ? "" : "s");
}

std::string width_and_rounds(const WavePlan& plan) {
  return fmt::format(
      "{} wave{} of at most {} contributors, {} round{} of at most {} transfers, "
      "{} pass{}",
      plan.waves().size(), plan.waves().size() == 1 ? "" : "s", plan.options().width,
      plan.rounds().size(), plan.rounds().size() == 1 ? "" : "s", plan.options().transfers,
      plan.options().passes, plan.options().passes == 1 ? "" : "es");
}

}  // namespace

std::string all_gather_text(const Topology& topology) {
  const std::vector<BruckRound> rounds = bruck_rounds(topology.nodes(), 0);
  std::string text = headline("All-gather", topology);
  print(text, ": {} round{} on each rail\n\n", rounds.size(), rounds.size() == 1 ? "" : "s");
  print(text, "{:>6}  {:<10}{:<8}{}\n", "round", "sends", "to", "fills there");
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    print(text, "{:>6}  {:<10}{:<8}{}\n", round, slots(0, rounds[round].slots),
          fmt::format("n - {}", rounds[round].first_received),
          slots(rounds[round].first_received, rounds[round].slots));
  }
  const std::size_t width = shards(topology, 0, 0, topology.nodes()).size();
  print(text, "\nshards of nodes, by slot\n{:>6}  {:<{}}", "node", "start",
        std::max<std::size_t>(width, 5));
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    print(text, "  {:<{}}", fmt::format("round {}", round), std::max<std::size_t>(width, 7));
  }
  for (int node = 0; node < topology.nodes(); ++node) {
    print(text, "\n{:>6}  {:<{}}", node, node, std::max<std::size_t>(width, 5));
    for (const BruckRound& round : rounds) {
      print(text, "  {:<{}}", shards(topology, node, 0, round.first_received + round.slots),
            std::max<std::size_t>(width, 7));
    }
  }
  return text + "\n";
}

std::string all_gather_text(const Topology& topology, int rank) {
  const int node = topology.node_of(rank);
  const int local = topology.local_of(rank);
  std::string text = headline("All-gather", topology);
  print(text, ": rank {}, local rank {} of node {}\n\n", rank, local, node);
  print(text, "{:>6}  {:<10}{:<10}{:<10}{:<10}{}\n", "round", "sends", "to rank", "receives",
        "from rank", "shards of nodes");
  const std::vector<BruckRound> rounds = bruck_rounds(topology.nodes(), node);
  for (std::size_t at = 0; at < rounds.size(); ++at) {
    const BruckRound& round = rounds[at];
    print(text, "{:>6}  {:<10}{:<10}{:<10}{:<10}{}\n", at, slots(0, round.slots),
          topology.rank_of(round.destination, local), slots(round.first_received, round.slots),
          topology.rank_of(round.source, local),
          shards(topology, node, round.first_received, round.slots));
  }
  print(text, "\nafter each round it copies what local ranks {} to {} hold into its landing\n", 0,
        topology.local_ranks() - 1);
  return text;
}

std::string reduce_scatter_text(const WavePlan& plan, int destination_node) {
  const Topology& topology = plan.topology();
  const LatinSquare square(topology);
  std::string text = headline("Reduce-scatter", topology);
  print(text, ": {}\n\n", width_and_rounds(plan));
  print(text, "{:>6}{:>7}  {:<14}{:<16}\n", "wave", "round", "contributors",
        fmt::format("nodes, to node {}", destination_node));
  for (std::size_t wave = 0; wave < plan.waves().size(); ++wave) {
    const Wave& its = plan.waves()[wave];
    const auto line = [&](const std::string& round, int first, int count) {
      std::string sources;
      for (int contributor = first; contributor < first + count; ++contributor) {
        print(sources, "{}{}", sources.empty() ? "" : " ",
              square.source(destination_node, contributor));
      }
      print(text, "{:>6}{:>7}  {:<14}{}\n", wave, round, slots(first, count), sources);
    };
    for (int round = its.first_round; round < its.first_round + its.rounds; ++round) {
      const Round& transfers = plan.rounds()[static_cast<std::size_t>(round)];
      line(std::to_string(round), transfers.first, transfers.transfers);
    }
    if (its.first + its.contributors > topology.nodes()) {
      line("own", topology.nodes(), 1);
    }
  }
  for (std::size_t wave = 0; wave < plan.waves().size(); ++wave) {
    const Wave& its = plan.waves()[wave];
    print(text, "\nwave {} on node {}: the node whose partial lies there\n{:>12}", wave,
          destination_node, "sub-slice");
    for (int sub_slice = 0; sub_slice < topology.local_ranks(); ++sub_slice) {
      print(text, "{:>5}", sub_slice);
    }
    for (int local = 0; local < topology.local_ranks(); ++local) {
      std::vector<std::string> cells(static_cast<std::size_t>(topology.local_ranks()), ".");
      for (int contributor = its.first; contributor < its.first + its.contributors; ++contributor) {
        cells[static_cast<std::size_t>(square.sub_slice(local, contributor))] =
            std::to_string(square.source(destination_node, contributor));
      }
      print(text, "\n{:>12}", fmt::format("local rank {}", local));
      for (const std::string& cell : cells) {
        print(text, "{:>5}", cell);
      }
    }
    text += '\n';
  }
  return text;
}

std::string reduce_scatter_rank_text(const WavePlan& plan, int rank) {
  const Topology& topology = plan.topology();
  const LatinSquare square(topology);
  const int node = topology.node_of(rank);
  const int local = topology.local_of(rank);
  std::string text = headline("Reduce-scatter", topology);
  print(text, ": rank {}, local rank {} of node {}; {}\n\n", rank, local, node,
        width_and_rounds(plan));
  print(text, "{:>6}{:>7}{:>13}  {:<26}{}\n", "wave", "round", "contributor", "sends", "receives");
  for (std::size_t wave = 0; wave < plan.waves().size(); ++wave) {
    const Wave& its = plan.waves()[wave];
    for (int round = its.first_round; round < its.first_round + its.rounds; ++round) {
      const Round& transfers = plan.rounds()[static_cast<std::size_t>(round)];
      for (int contributor = transfers.first; contributor < transfers.first + transfers.transfers;
           ++contributor) {
        const int sub_slice = square.sub_slice(local, contributor);
        print(text, "{:>6}{:>7}{:>13}  {:<26}{}\n", wave, round, contributor,
              fmt::format("sub-slice {} to rank {}", sub_slice,
                          topology.rank_of(square.destination(node, contributor), local)),
              fmt::format("sub-slice {} from rank {}", sub_slice,
                          topology.rank_of(square.source(node, contributor), local)));
      }
    }
    if (its.first + its.contributors > topology.nodes()) {
      print(text, "{:>6}{:>7}{:>13}  sub-slice {} stays\n", wave, "own", topology.nodes(),
            square.sub_slice(local, topology.nodes()));
    }
    print(text, "{:>6}  lands its rows of all {} sub-slices\n", wave, topology.local_ranks());
  }
  return text;
}

}  // namespace headrace
