#include "plan.h"

#include "plan_check.h"
#include "plan_memory.h"
#include "plan_show.h"

namespace headrace::cli {

void add_plan(CLI::App& app) {
  CLI::App* plan = app.add_subcommand(
      "plan", "Prove, size and show lockstep plans, for any world, on any machine");
  plan->require_subcommand(1);
  add_plan_check(*plan);
  add_plan_memory(*plan);
  add_plan_show(*plan);
}

}  // namespace headrace::cli
