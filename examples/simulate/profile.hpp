// Layers from a profile that PyTorch has written: torch.profiler's export_chrome_trace.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/plan.hpp>

#include "json.hpp"

namespace simulation {

namespace gs = gradsieve;

/// Bytes of an element, by the names that profiles have for types; 0 for others.
[[nodiscard]] inline std::uint64_t element_bytes(std::string const& type) {
  static std::map<std::string, std::uint64_t> const known{{"float", 4},
                                                          {"double", 8},
                                                          {"c10::Half", 2},
                                                          {"c10::BFloat16", 2},
                                                          {"c10::complex<float>", 8},
                                                          {"c10::complex<double>", 16}};
  auto const found = known.find(type);
  return found == known.end() ? 0 : found->second;
}

/// The layers of a profile's backward passes, in the order in which autograd has accumulated their gradients. Bytes
/// come from the shapes of record_shapes=True, or from `sizes` in that order. A gradient's backward time is from the
/// one before it, or from the pass's first event; forward time is not told apart by layer: it belongs to the first
/// layer of the network, which is the last here. Of several passes, medians. Wall clock of one thread: on a GPU only a
/// profile of a run that waits for each kernel has a backward pass's times.
/// @throws std::runtime_error, with the reason, if that cannot be had from these events.
[[nodiscard]] inline gs::trace from_profile(std::vector<json> const& events, std::string const& name,
                                            std::vector<std::uint64_t> const& sizes) {
  constexpr std::string_view engine = "autograd::engine::evaluate_function: ";
  constexpr std::string_view accumulation = "torch::autograd::AccumulateGrad";
  auto const fail = [&](std::string const& why) -> void {
    throw std::runtime_error("'" + name + "' is a profile, and " + why);
  };

  struct event {
    double begin, end;  // microseconds
    std::string_view what;
    json const* arguments;
    std::size_t place;
  };
  std::vector<event> all;
  for (auto const& each : events) {
    auto const *what = each.find("name"), *begin = each.find("ts"), *lasts = each.find("dur"), *of = each.find("cat");
    if (!what || !begin || !lasts) continue;  // metadata, flows, instants
    bool const optimizer = what->text.substr(0, 10) == "Optimizer.";
    if (of && of->text != "cpu_op" && of->text != "Operator" && !optimizer) continue;
    all.push_back({begin->value, begin->value + lasts->value, what->text, each.find("args"), all.size()});
  }
  // Of those that begin together the longer one is around the other.
  std::sort(all.begin(), all.end(), [](event const& a, event const& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end != b.end ? a.end > b.end : a.place < b.place;
  });

  // Autograd numbers the operations that it will differentiate; old profiles have no numbers.
  auto const is_numbered = [](json const* arguments) { return arguments && arguments->find("Sequence number"); };
  bool const numbered = std::any_of(all.begin(), all.end(), [&](event const& it) { return is_numbered(it.arguments); });

  struct gradient {
    std::uint64_t bytes = 0;
    std::uint32_t dtype = 0;
    std::uint32_t element = 4;
    std::string shape;
    double backward = 0;
    bool operator==(gradient const& other) const {
      return bytes == other.bytes && dtype == other.dtype && shape == other.shape;
    }
  };
  struct pass {
    std::vector<gradient> gradients;
    double forward = 0;
  };
  std::vector<pass> passes;
  double busy_until = 0;  // end of what is no forward pass
  double forward_begin = 0;
  double ready = 0;
  bool in_backward = false;
  bool has_forward = false;
  for (auto const& each : all) {
    bool const from_engine = each.what.substr(0, engine.size()) == engine;
    if (each.what.substr(0, 10) == "Optimizer.") {
      busy_until = std::max(busy_until, each.end);
      in_backward = has_forward = false;
      continue;
    }
    if (!from_engine && each.what != accumulation) {
      if (each.what.substr(0, 6) != "aten::" || each.begin < busy_until) continue;
      in_backward = false;
      if (!has_forward && (!numbered || is_numbered(each.arguments))) {
        has_forward = true;
        forward_begin = each.begin;
      }
      continue;
    }
    if (from_engine && each.what.substr(engine.size(), 5) == "Graph") continue;  // the root, which waits
    if (!in_backward || passes.empty()) {
      in_backward = true;
      passes.emplace_back();
      passes.back().forward = has_forward ? each.begin - forward_begin : 0;
      has_forward = false;
      ready = each.begin;
    }
    busy_until = std::max(busy_until, each.end);
    if (each.what != accumulation) continue;
    gradient made;
    auto const* const shapes = each.arguments ? each.arguments->find("Input Dims") : nullptr;
    auto const* types = each.arguments ? each.arguments->find("Input type") : nullptr;
    if (each.arguments && !types) types = each.arguments->find("Input Types");
    if (shapes && !shapes->items.empty() && types && !types->items.empty()) {
      if (types->items[0].text.empty()) continue;  // a gradient that was not defined: there is none to exchange
      made.bytes = element_bytes(types->items[0].text);
      if (made.bytes == 0) fail("a gradient has the type '" + types->items[0].text + "', of no known size");
      made.element = static_cast<std::uint32_t>(made.bytes);
      auto const& type = types->items[0].text;
      made.dtype = type == "float" ? 0 : type == "c10::BFloat16" ? 3 : static_cast<std::uint32_t>(made.bytes);
      for (auto const& length : shapes->items[0].items) {
        if (!(length.value >= 0 && length.value < 1e15)) fail("a gradient has a negative or huge length");
        made.bytes *= static_cast<std::uint64_t>(length.value);
        if (made.bytes >= gs::trace::limit) fail("a gradient has 2^53 bytes or more");
        made.shape += (made.shape.empty() ? "" : "x") + length.text;
      }
    }
    made.backward = each.end - ready;
    ready = each.end;
    passes.back().gradients.push_back(std::move(made));
  }
  std::erase_if(passes, [](pass const& each) { return each.gradients.empty(); });
  if (passes.empty())
    fail("it has no '" + std::string{accumulation} + "' of a gradient: profile a backward pass on the CPU side");

  auto& last = passes.back().gradients;
  if (!sizes.empty()) {
    if (sizes.size() != last.size())
      fail("its last backward pass has " + std::to_string(last.size()) + " gradients, --sizes names " +
           std::to_string(sizes.size()));
    for (auto& each : passes)
      for (std::size_t i = 0; i < each.gradients.size() && i < sizes.size(); ++i) each.gradients[i].bytes = sizes[i];
  } else if (last.front().shape.empty() && last.front().bytes == 0) {
    fail("it has no shapes: profile with record_shapes=True, or give the gradients' bytes in ready order by --sizes");
  }

  std::vector<pass> alike;  // what differs is a first step, or another model
  for (auto const& each : passes)
    if (each.gradients == last) alike.push_back(each);
  auto const median = [&](auto const& of) {
    std::vector<double> values;
    for (auto const& each : alike) values.push_back(of(each));
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2] * 1e-6;
  };
  std::vector<gs::traced_layer> layers;
  for (std::size_t i = 0; i < last.size(); ++i) {
    auto const shape = last[i].shape.empty() ? "" : " " + last[i].shape;
    layers.push_back({"gradient " + std::to_string(i + 1) + shape, last[i].bytes,
                      median([&](pass const& each) { return each.gradients[i].backward; }), 0, last[i].dtype,
                      last[i].element});
  }
  layers.back().forward = median([](pass const& each) { return each.forward; });
  return gs::trace{std::move(layers), name};
}

}  // namespace simulation
