// Plans which gradients are exchanged together: traces, costs, planners. Needs only core/; overlap.hpp executes plans.
#pragma once

#include <gradsieve/plan/collectives.hpp>
#include <gradsieve/plan/cost.hpp>
#include <gradsieve/plan/csv.hpp>
#include <gradsieve/plan/fit.hpp>
#include <gradsieve/plan/make_plan.hpp>
#include <gradsieve/plan/plan.hpp>
#include <gradsieve/plan/planners/fixed.hpp>
#include <gradsieve/plan/planners/greedy.hpp>
#include <gradsieve/plan/planners/optimal.hpp>
#include <gradsieve/plan/removed.hpp>
#include <gradsieve/plan/trace.hpp>

/// @defgroup scheduling Schedules
/// Which gradients are exchanged together and when: traces, costs and plans.

/// @defgroup planners Planners
/// @ingroup scheduling
/// Policies that make a plan from a trace and a cost; see make_plan().

/// @defgroup costs Costs
/// @ingroup scheduling
/// The time of collectives, modelled or measured.
