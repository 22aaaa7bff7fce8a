// The library's planners in Python.
#pragma once

#include <pybind11/pybind11.h>

namespace example {

/// Adds make_plan, fixed_plan, link_cost, fit_cost, trace_text and read_trace to the module.
void define_planners(pybind11::module_& module);

}  // namespace example
