// A user of the installed engine: two ranks as threads, each publishes its shard and gathers both.

#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "balance/strategies.h"
#include "session/session.h"
#include "transport/exchange.h"
#include "transport/shm/shm_transport.h"

namespace {

constexpr int k_ranks = 2;
constexpr int k_rows = 4;
constexpr int k_columns = 8;

headrace::Status gather(int rank, headrace::ThreadExchange& exchange,
                        std::vector<float>& gathered) {
  const headrace::ModelSpec model{
      .groups = {{.name = "layer",
                  .parameters = {{.name = "weight",
                                  .rows = k_rows,
                                  .row_elements = k_columns,
                                  .dtype = headrace::DType::float32}}}}};
  HEADRACE_TRY_ASSIGN(const auto session,
                      headrace::Session::connect({.rank = rank, .world_size = k_ranks}, model,
                                                 [&](const headrace::TransportConfig& config) {
                                                   return headrace::make_shm_transport(
                                                       config, exchange.for_rank(rank));
                                                 }));
  std::vector<float> shard(k_rows / k_ranks * k_columns);
  std::iota(shard.begin(), shard.end(), static_cast<float>(rank * shard.size()));
  HEADRACE_TRY(session->open(headrace::BracketKind::evaluation, 0, 0,
                             {{{.address = shard.data(), .dtype = headrace::DType::float32}}}));
  void* landing = gathered.data();
  HEADRACE_TRY(session->gather(0, {&landing, 1}));
  HEADRACE_TRY(session->finish(0, 0, 0));
  session->close();
  return {};
}

}  // namespace

int main() {
  headrace::ThreadExchange exchange(k_ranks);
  std::vector<std::vector<float>> gathered(k_ranks, std::vector<float>(k_rows * k_columns));
  std::vector<headrace::Status> statuses(k_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < k_ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = gather(rank, exchange, gathered[rank]); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<float> whole(k_rows * k_columns);
  std::iota(whole.begin(), whole.end(), 0.0F);
  for (int rank = 0; rank < k_ranks; ++rank) {
    if (!statuses[rank] || gathered[rank] != whole) {
      std::fprintf(stderr, "rank %d: %s\n", rank,
                   statuses[rank] ? "wrong values" : statuses[rank].error().describe().c_str());
      return 1;
    }
  }
  // The balancer links, too.
  return headrace::strategies().empty() ? 1 : 0;
}
