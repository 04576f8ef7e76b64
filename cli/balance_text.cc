#include "balance_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "balance/plan_timeline.h"

namespace headrace::cli {
namespace {

constexpr int k_fewest_columns = 16;     ///< of a bar, however narrow the terminal is
constexpr std::size_t k_most_bars = 64;  ///< more would fill no page
constexpr int k_digits = 3;              ///< between separators
constexpr std::array k_colours = {"\x1b[34m", "\x1b[33m"};
constexpr const char* k_faint = "\x1b[2m";
constexpr const char* k_plain = "\x1b[0m";

template <class Integer>
std::string grouped(Integer value) {
  std::string text = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - k_digits; at > 0; at -= k_digits) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100.0 * share); }

/// How far a time lies above its lower bound.
std::string above_bound(const ModeTotal& mode) {
  return mode.lower_bound > 0.0 ? percent(std::max(mode.time / mode.lower_bound - 1.0, 0.0)) : "-";
}

template <class Integer>
std::string plural(Integer count, const char* one, const char* many) {
  return fmt::format("{} {}", grouped(count), count == 1 ? one : many);
}

std::string a_rank(const Totals& totals) {
  return totals.fewest == totals.most
             ? fmt::format("{} a rank", grouped(totals.most))
             : fmt::format("{} to {} a rank", grouped(totals.fewest), grouped(totals.most));
}

std::string recommendation(const Totals& totals) {
  const double lockstep = totals.lockstep.time;
  if (totals.lockstep_minibatches == totals.minibatches) {
    const double saved = lockstep > 0.0 ? 1.0 - totals.on_demand.time / lockstep : 0.0;
    return fmt::format("lockstep; on-demand would save {} of its time", percent(saved));
  }
  const double saved = lockstep > 0.0 ? 1.0 - totals.recommended.time / lockstep : 0.0;
  const std::string saves = fmt::format("saves {} of lockstep's time", percent(saved));
  return totals.lockstep_minibatches == 0
             ? fmt::format("on-demand, {}", saves)
             : fmt::format("auto, {}: lockstep in {} of {} minibatches, on-demand in the others",
                           saves, grouped(totals.lockstep_minibatches),
                           grouped(totals.minibatches));
}

/// What fills a rank's bar, a letter a column: '#' and '|' for its microbatches, '.' for waiting.
struct Bar {
  std::string letters;
  std::vector<std::size_t> microbatches;  ///< of each column that is not dotted
};

Bar bar_of(const std::vector<Span>& spans, double makespan, int columns) {
  Bar bar{.letters = std::string(static_cast<std::size_t>(columns), '.'),
          .microbatches = std::vector<std::size_t>(static_cast<std::size_t>(columns), 0)};
  const auto column = [&](double time) {
    return static_cast<std::size_t>(
        makespan > 0.0 ? std::lround(time / makespan * static_cast<double>(columns)) : 0);
  };
  for (const Span& span : spans) {
    const std::size_t begin = column(span.begin);
    const std::size_t end = column(span.end);
    for (std::size_t at = begin; at < end; ++at) {
      bar.letters[at] = at + 1 == end && end - begin > 1 ? '|' : '#';
      bar.microbatches[at] = span.microbatch;
    }
  }
  return bar;
}

std::string coloured(const Bar& bar) {
  std::string text;
  const char* current = k_plain;
  for (std::size_t at = 0; at < bar.letters.size(); ++at) {
    const char* wanted =
        bar.letters[at] == '.' ? k_faint : k_colours[bar.microbatches[at] % k_colours.size()];
    if (wanted != current) {
      text += k_plain;
      text += wanted;
      current = wanted;
    }
    text += bar.letters[at];
  }
  return text + k_plain;
}

}  // namespace

std::string summary_text(const Totals& totals, const BalanceOptions& options,
                         const std::string& model) {
  std::string text;
  const auto line = [&text](const char* name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "  {:<14}{}\n", name, value);
  };
  fmt::format_to(std::back_inserter(text), "{}: {} with {} on {}, at most {} a microbatch\n",
                 to_string(options.strategy), plural(totals.samples, "sample", "samples"),
                 plural(totals.tokens, "token", "tokens"),
                 plural(options.world_size, "rank", "ranks"), grouped(options.cap));
  if (totals.minibatches > 1) {
    line("minibatches", grouped(totals.minibatches));
  }
  line("microbatches", fmt::format("{}, {}{}", grouped(totals.microbatches), a_rank(totals),
                                   totals.fillers > 0 ? fmt::format(", {} empty ones beside them",
                                                                    grouped(totals.fillers))
                                                      : ""));
  line("cap use", percent(totals.cap_use));
  if (totals.oversize > 0) {
    line("tokens lost",
         fmt::format("{}, to {} of {}", grouped(totals.tokens_lost), to_string(options.oversize),
                     plural(totals.oversize, "sample over the cap", "samples over the cap")));
  }
  line("cost model",
       fmt::format("{}: {:.4g} s^2 + {:.4g} s{}", model, options.cost.quadratic(),
                   options.cost.linear(),
                   options.cost.per_microbatch() > 0.0
                       ? fmt::format(" + {:.4g} a microbatch", options.cost.per_microbatch())
                       : ""));
  const auto row = [&text](const char* name, const std::string& time, const std::string& waiting,
                           const std::string& bound, const std::string& above) {
    fmt::format_to(std::back_inserter(text), "  {:<12}{:>10}{:>10}{:>14}{:>10}\n", name, time,
                   waiting, bound, above);
  };
  row("mode", "time", "waiting", "lower bound", "above it");
  for (const auto& [name, mode] :
       {std::pair{"lockstep", &totals.lockstep}, std::pair{"on-demand", &totals.on_demand}}) {
    row(name, fmt::format("{:.4g}", mode->time), percent(mode->waiting),
        fmt::format("{:.4g}", mode->lower_bound), above_bound(*mode));
  }
  line("recommended", recommendation(totals));
  return text;
}

std::string bars_text(const BalancePlan& plan, const Terminal& terminal) {
  const Mode mode = auto_mode(plan);
  const double makespan = prediction(plan, mode).makespan;
  const std::size_t shown = std::min(plan.ranks.size(), k_most_bars);
  std::vector<std::string> heads;
  std::vector<std::string> tails;
  std::size_t beside = 0;
  for (std::size_t rank = 0; rank < shown; ++rank) {
    std::int64_t tokens = 0;
    std::size_t microbatches = 0;
    for (const Microbatch& microbatch : plan.ranks[rank]) {
      tokens += microbatch.tokens;
      microbatches += microbatch.filler() ? 0 : 1;
    }
    heads.push_back(fmt::format("rank {:<{}} ", rank, std::to_string(shown - 1).size()));
    tails.push_back(fmt::format("  {} in {}", grouped(tokens), grouped(microbatches)));
    beside = std::max(beside, heads.back().size() + tails.back().size());
  }
  const int columns = std::max(terminal.columns - static_cast<int>(beside), k_fewest_columns);
  std::string text = fmt::format(
      "{}, {:.4g} from left to right; '|' ends a microbatch, '.' waits; tokens in microbatches\n",
      to_string(mode), makespan);
  const std::vector<std::vector<Span>> ranks = timeline(plan, mode);
  for (std::size_t rank = 0; rank < shown; ++rank) {
    const Bar bar = bar_of(ranks[rank], makespan, columns);
    text += heads[rank] + (terminal.colours ? coloured(bar) : bar.letters) + tails[rank] + "\n";
  }
  if (shown < plan.ranks.size()) {
    fmt::format_to(std::back_inserter(text), "and {} more ranks; --json and --svg have them all\n",
                   grouped(plan.ranks.size() - shown));
  }
  return text;
}

std::string comparison_text(const std::vector<std::pair<Strategy, Totals>>& strategies) {
  std::string text = fmt::format("{:<14}{:>9}{:>7}{:>9}{:>16}{:>9}\n", "", "micro-", "cap",
                                 "lockstep", "", "on-demand");
  using Cells = std::array<std::string, 3>;
  const auto row = [&text](const std::string& name, const std::string& count,
                           const std::string& use, const Cells& lockstep, const Cells& on_demand) {
    fmt::format_to(std::back_inserter(text), "{:<14}{:>9}{:>7}", name, count, use);
    for (const auto& [time, waiting, above] : {lockstep, on_demand}) {
      fmt::format_to(std::back_inserter(text), "{:>9}{:>8}{:>8}", time, waiting, above);
    }
    text += '\n';
  };
  const auto cells = [](const ModeTotal& mode) {
    return Cells{fmt::format("{:.3g}", mode.time), percent(mode.waiting), above_bound(mode)};
  };
  const Cells heads = {"time", "waiting", "above"};
  row("strategy", "batches", "use", heads, heads);
  for (const auto& [strategy, totals] : strategies) {
    row(to_string(strategy), grouped(totals.microbatches), percent(totals.cap_use),
        cells(totals.lockstep), cells(totals.on_demand));
  }
  return text + "above: over a time that no plan of the same minibatches can beat\n";
}

}  // namespace headrace::cli
