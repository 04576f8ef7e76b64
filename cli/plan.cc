#include "plan.h"

#include "plan_check.h"
#include "plan_memory.h"

namespace headrace::cli {

void add_plan(CLI::App& app) {
  CLI::App* plan =
      app.add_subcommand("plan", "Prove and size lockstep plans, for any world, on any machine");
  plan->require_subcommand(1);
  add_plan_check(*plan);
  add_plan_memory(*plan);
}

}  // namespace headrace::cli
