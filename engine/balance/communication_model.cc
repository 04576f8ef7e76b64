#include "balance/communication_model.h"

#include <algorithm>
#include <vector>

namespace headrace {
namespace {

double on_demand_time(const BalancePlan& plan, double microbatch) {
  double slowest = 0.0;
  for (const auto& microbatches : plan.ranks) {
    double rank = 0.0;
    for (const Microbatch& one : microbatches) {
      rank += one.filler() ? 0.0 : one.cost + microbatch;
    }
    slowest = std::max(slowest, rank);
  }
  return slowest;
}

double lockstep_time(const BalancePlan& plan, double microbatch) {
  std::vector<double> steps;
  for (const auto& microbatches : plan.ranks) {
    steps.resize(std::max(steps.size(), microbatches.size()), 0.0);
    for (std::size_t step = 0; step < microbatches.size(); ++step) {
      steps[step] = std::max(steps[step], microbatches[step].cost);
    }
  }
  double sum = 0.0;
  for (const double step : steps) {
    sum += step + microbatch;
  }
  return sum;
}

}  // namespace

double step_time(const BalancePlan& plan, Mode mode, const CommunicationModel& communication) {
  if (mode == Mode::on_demand) {
    return on_demand_time(plan, communication.gather + communication.push) +
           communication.on_demand_minibatch;
  }
  return lockstep_time(plan, communication.all_gather + communication.reduce_scatter) +
         communication.lockstep_minibatch;
}

Mode recommend(const BalancePlan& plan, const CommunicationModel& communication,
               double least_gain) {
  const double on_demand = step_time(plan, Mode::on_demand, communication);
  const double lockstep = step_time(plan, Mode::lockstep, communication);
  return on_demand < (1.0 - least_gain) * lockstep ? Mode::on_demand : Mode::lockstep;
}

}  // namespace headrace
