// Plans which gradients are exchanged together, simulates plans, and runs them.
#pragma once

#include <gradsieve/schedule/advise.hpp>
#include <gradsieve/schedule/collectives.hpp>
#include <gradsieve/schedule/cost.hpp>
#include <gradsieve/schedule/csv.hpp>
#include <gradsieve/schedule/dense_mean.hpp>
#include <gradsieve/schedule/make_plan.hpp>
#include <gradsieve/schedule/measure/fit.hpp>
#include <gradsieve/schedule/measure/measure_cost.hpp>
#include <gradsieve/schedule/networks.hpp>
#include <gradsieve/schedule/overlap/agree.hpp>
#include <gradsieve/schedule/overlap/group_exchange.hpp>
#include <gradsieve/schedule/overlap/overlap.hpp>
#include <gradsieve/schedule/overlap/tracker.hpp>
#include <gradsieve/schedule/plan.hpp>
#include <gradsieve/schedule/planners/fixed.hpp>
#include <gradsieve/schedule/planners/greedy.hpp>
#include <gradsieve/schedule/planners/optimal.hpp>
#include <gradsieve/schedule/planners/optimal_rs_ag.hpp>
#include <gradsieve/schedule/planners/optimal_sparse.hpp>
#include <gradsieve/schedule/planners/robust.hpp>
#include <gradsieve/schedule/simulate/chrome_trace.hpp>
#include <gradsieve/schedule/simulate/simulate.hpp>
#include <gradsieve/schedule/trace.hpp>

/// @defgroup scheduling Schedules
/// Which gradients travel together and when: traces, costs and plans.

/// @defgroup planners Planners
/// @ingroup scheduling
/// Policies that make a plan from a trace and a cost; see make_plan().

/// @defgroup costs Costs and simulation
/// @ingroup scheduling
/// What collectives take, modelled or measured, and what a plan would take.

/// @defgroup overlapping Overlap
/// @ingroup scheduling
/// Exchanging the groups of a plan while the backward pass still runs.
