// Moves the states of compressors from one grouping of layers to another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/step/checkpoint.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The states of all layers of a model, for when buckets, or the groups of a plan, change between steps. Call
/// `put(each.layers(), each.state())` for each old compressor, then `each.restore(states.take(each.layers()))` for each
/// new one. Layers are identified by name; their order and grouping do not matter. If the states are of different steps
/// (one compressor failed and others did not), the latest step counts. Warm thresholds belong to the old segments and
/// are dropped. Local to a rank; ranks that make the same calls with equal layouts stay at the same step. Memory: one
/// float for each element and state of the layers that were put.
class layer_states {
 public:
  /// Starts without states, for a model with these layers. @throws invalid_argument if two layers have the same name.
  explicit layer_states(layout model)
      : model_{std::move(model)}, values_(model_.count()), known_(model_.count(), false) {
    for (std::size_t i = 0; i < model_.count(); ++i)
      if (!place_.emplace(model_[i].name, i).second)
        throw invalid_argument("gradsieve: two layers are called '" + model_[i].name + "': states go by names");
  }

  /// Stores the state of a compressor for these layers. A later state of a layer replaces the earlier one. Cost: a
  /// copy. Allocates. @throws corrupt_state; mismatch if a layer is not in the model's layout, the state is not of this
  /// part, it is of another residual store than earlier ones, or the part names a layer twice; std::bad_alloc. Nothing
  /// is changed if it throws.
  void put(layout const& part, std::span<std::byte const> state) {
    auto const found = checkpoint::read(state);
    found.require(any_ ? states_ : found.states, any_ ? store_ : found.store, part.size(), part.hash());
    auto const places = places_of(part);
    std::vector<std::vector<float>> fresh(part.count());
    for (std::size_t i = 0; i < part.count(); ++i) {
      auto const size = part[i].size;
      fresh[i].resize(found.states * size);
      for (std::uint16_t s = 0; s < found.states; ++s)
        wire::load(std::span{fresh[i]}.subspan(s * size, size),
                   found.values.subspan(4 * (found.n * s + part.offset(i)), 4 * size));
    }
    for (std::size_t i = 0; i < part.count(); ++i) {
      values_[places[i]].swap(fresh[i]);
      known_[places[i]] = true;
    }
    states_ = found.states;
    store_ = found.store;
    step_ = any_ ? std::max(step_, found.step) : found.step;
    any_ = true;
  }

  /// A state for a compressor of these layers: zero for a layer without a stored state. Cost: a copy. Allocates.
  /// @throws mismatch if a layer is not in the model's layout or named twice; invalid_argument if nothing was put.
  [[nodiscard]] std::vector<std::byte> take(layout const& part) const {
    if (!any_) throw invalid_argument("gradsieve: take() before any put(): there is no state");
    auto const places = places_of(part);
    std::vector<float> row(part.size());
    return checkpoint{states_, store_, part.size(), part.hash(), step_, {}, {}}.write([&](std::size_t s) {
      for (std::size_t i = 0; i < part.count(); ++i)
        if (known_[places[i]])
          std::copy_n(values_[places[i]].data() + s * part[i].size, part[i].size, row.data() + part.offset(i));
      return std::span<float const>{row};
    });
  }

  /// True if this layer has a stored state. @throws mismatch if the layer is not in the model's layout.
  [[nodiscard]] bool has(std::string_view name) const { return known_[place_of(name)]; }

 private:
  [[nodiscard]] std::size_t place_of(std::string_view name) const {
    auto const found = place_.find(std::string{name});
    if (found == place_.end()) throw mismatch("gradsieve: there is no layer '" + std::string{name} + "' in the model");
    return found->second;
  }

  [[nodiscard]] std::vector<std::size_t> places_of(layout const& part) const {
    std::vector<std::size_t> places;
    std::vector<bool> named(model_.count(), false);
    for (auto const& each : part) {
      places.push_back(place_of(each.name));
      if (named[places.back()]) throw mismatch("gradsieve: the part names layer '" + each.name + "' twice");
      named[places.back()] = true;
      if (auto const size = model_[places.back()].size; size != each.size)
        throw mismatch("gradsieve: layer '" + each.name + "' has " + std::to_string(each.size) +
                       " elements, in the model it has " + std::to_string(size));
    }
    return places;
  }

  layout model_;
  std::unordered_map<std::string, std::size_t> place_;
  std::vector<std::vector<float>> values_;  // of each layer with a state, state by state
  std::vector<bool> known_;
  std::uint16_t states_ = 0;
  std::uint32_t store_ = 0;
  std::uint64_t step_ = 0;
  bool any_ = false;
};

}  // namespace gradsieve
