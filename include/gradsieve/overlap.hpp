// Exchanges the groups of a plan during the backward pass; measures the cost of exchanges. Needs the core and plan.hpp.
#pragma once

#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/overlap/group_exchange.hpp>
#include <gradsieve/overlap/measure_cost.hpp>
#include <gradsieve/overlap/overlap.hpp>
#include <gradsieve/overlap/tracker.hpp>

/// @defgroup overlapping Overlap
/// @ingroup scheduling
/// Exchanging the groups of a plan while the backward pass still runs.
