// Planning which gradients travel together, simulating it, and doing it.
#pragma once

#include <gradsieve/schedule/agree.hpp>
#include <gradsieve/schedule/chrome_trace.hpp>
#include <gradsieve/schedule/collectives.hpp>
#include <gradsieve/schedule/cost.hpp>
#include <gradsieve/schedule/csv.hpp>
#include <gradsieve/schedule/dense_mean.hpp>
#include <gradsieve/schedule/fit.hpp>
#include <gradsieve/schedule/fixed.hpp>
#include <gradsieve/schedule/greedy.hpp>
#include <gradsieve/schedule/group_exchange.hpp>
#include <gradsieve/schedule/make_plan.hpp>
#include <gradsieve/schedule/measure_cost.hpp>
#include <gradsieve/schedule/networks.hpp>
#include <gradsieve/schedule/optimal.hpp>
#include <gradsieve/schedule/optimal_rs_ag.hpp>
#include <gradsieve/schedule/optimal_sparse.hpp>
#include <gradsieve/schedule/overlap.hpp>
#include <gradsieve/schedule/plan.hpp>
#include <gradsieve/schedule/robust.hpp>
#include <gradsieve/schedule/simulate.hpp>
#include <gradsieve/schedule/trace.hpp>
#include <gradsieve/schedule/tracker.hpp>
