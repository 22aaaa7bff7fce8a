// Runs a plan during the backward pass, and measures the cost of exchanges. Depends on the core and on plan.hpp.
#pragma once

#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/overlap/agree.hpp>
#include <gradsieve/overlap/group_exchange.hpp>
#include <gradsieve/overlap/measure_cost.hpp>
#include <gradsieve/overlap/overlap.hpp>
#include <gradsieve/overlap/tracker.hpp>

/// @defgroup overlapping Overlap
/// @ingroup scheduling
/// Exchanging the groups of a plan while the backward pass still runs.
