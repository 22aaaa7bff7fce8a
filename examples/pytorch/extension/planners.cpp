// The library's planners in Python, without torch.
#include "planners.hpp"

#include <cstdint>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include <gradsieve/plan.hpp>

#include "../../command_line.hpp"
#include "../../simulate/published_networks.hpp"

namespace example {
namespace {

namespace gs = gradsieve;
namespace py = pybind11;

/// As gs::traced_layer.
using layer_row = std::tuple<std::string, std::uint64_t, double, double, std::uint32_t, std::uint32_t>;
/// Where a group ends, its bytes, its start and its finish.
using group_row = std::tuple<std::size_t, std::uint64_t, double, double>;

gs::trace trace_of(std::vector<layer_row> const& rows) {
  std::vector<gs::traced_layer> layers;
  for (auto const& [name, bytes, backward, forward, dtype, element_bytes] : rows)
    layers.push_back({name, bytes, backward, forward, dtype, element_bytes});
  return gs::trace{std::move(layers)};
}

std::vector<layer_row> rows_of(gs::trace const& of) {
  std::vector<layer_row> rows;
  for (auto const& each : of)
    rows.emplace_back(each.name, each.bytes, each.backward, each.forward, each.dtype, each.element_bytes);
  return rows;
}

names const planner_names{"optimal", "mgwfbp", "free_merge", "wfbp", "single"};

/// `first` and `cap`: torch's rule instead of a planner's.
std::pair<std::vector<group_row>, std::optional<double>> make_plan(std::vector<layer_row> const& layers, double a,
                                                                   double b, std::string const& planner,
                                                                   std::uint64_t first, std::uint64_t cap) {
  auto const of = trace_of(layers);
  auto const cost = gs::affine{a, b};
  auto const made = [&] {
    if (cap > 0) return gs::make_plan(of, cost, gs::fixed_bucket{first, cap});
    if (planner == "optimal") return gs::make_plan(of, cost);
    if (planner == "mgwfbp") return gs::make_plan(of, cost, gs::mgwfbp{});
    if (planner == "free_merge") return gs::make_plan(of, cost, gs::free_merge{});
    if (planner == "wfbp") return gs::make_plan(of, cost, gs::wfbp{});
    if (planner == "single") return gs::make_plan(of, cost, gs::single{});
    throw usage_error("gradsieve: planner '" + planner + "': choose one of " + joined(planner_names));
  }();
  std::vector<group_row> groups;
  for (auto const& each : made.groups()) groups.emplace_back(each.end, each.bytes, each.start, each.finish);
  return {groups, made.certificate()};
}

/// Seconds of a group's exchange, startup and a byte, over a link by name or ALPHA,BETA; `exchange` dense: an
/// all-reduce.
std::pair<double, double> link_cost(std::string const& link, std::string const& exchange, int workers, double density,
                                    double entry_bytes) {
  auto const over = tools::network_named(link);
  auto const cost = [&] {
    if (exchange == "dense") return over.cost(workers);
    if (exchange == "gather") return gs::gather_cost(over.link, workers, density, entry_bytes);
    if (exchange == "index_union") return gs::index_union_cost(over.link, workers, density);
    if (exchange == "leader") return gs::leader_cost(over.link, workers, density);
    throw usage_error("gradsieve: exchange '" + exchange + "': choose one of dense, gather, index_union, leader");
  }();
  return {cost.a, cost.b};
}

/// The same from measured sizes and seconds, and the share of their variance that it explains.
std::tuple<double, double, double> fit_cost(std::vector<std::pair<std::uint64_t, double>> const& points) {
  std::vector<gs::measured_point> measured;
  for (auto const& [bytes, seconds] : points) measured.push_back({bytes, seconds});
  auto const fit = gs::fit_affine(std::move(measured));
  return {fit.cost.a, fit.cost.b, fit.r2};
}

std::string trace_text(std::vector<layer_row> const& layers) {
  std::ostringstream out;
  gs::write_csv(out, trace_of(layers));
  return out.str();
}

std::vector<layer_row> read_trace(std::string const& text) {
  std::istringstream in{text};
  return rows_of(gs::read_csv(in));
}

}  // namespace

void define_planners(py::module_& module) {
  module.attr("planners") = py::cast(planner_names);
  module.def("make_plan", &make_plan, py::arg("layers"), py::arg("a"), py::arg("b"), py::arg("planner"),
             py::arg("first"), py::arg("cap"));
  module.def("link_cost", &link_cost, py::arg("link"), py::arg("exchange"), py::arg("workers"), py::arg("density"),
             py::arg("entry_bytes"));
  module.def("fit_cost", &fit_cost, py::arg("points"));
  module.def("trace_text", &trace_text, py::arg("layers"));
  module.def("read_trace", &read_trace, py::arg("text"));
}

}  // namespace example
