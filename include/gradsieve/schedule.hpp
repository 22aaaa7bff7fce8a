// Planning which gradients travel together, and simulating it.
#pragma once

#include <gradsieve/schedule/chrome_trace.hpp>
#include <gradsieve/schedule/collectives.hpp>
#include <gradsieve/schedule/cost.hpp>
#include <gradsieve/schedule/csv.hpp>
#include <gradsieve/schedule/fixed.hpp>
#include <gradsieve/schedule/greedy.hpp>
#include <gradsieve/schedule/make_plan.hpp>
#include <gradsieve/schedule/networks.hpp>
#include <gradsieve/schedule/optimal.hpp>
#include <gradsieve/schedule/optimal_rs_ag.hpp>
#include <gradsieve/schedule/optimal_sparse.hpp>
#include <gradsieve/schedule/plan.hpp>
#include <gradsieve/schedule/robust.hpp>
#include <gradsieve/schedule/simulate.hpp>
#include <gradsieve/schedule/trace.hpp>
