// The messages and the local work of exchanges: the choices that advise() compares.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/plan/trace.hpp>

namespace tools {

using namespace gradsieve;

/// The work of a rank besides the collective. The defaults are for a rank with two cores (bench/results); measure yours
/// with bench/report.sh, or with measure_exchange() on a communicator of one rank.
struct local_cost {
  double element = 3.5e-10;  ///< seconds per element: accumulate, select, write the update
  double sent = 3e-9;        ///< seconds per entry that this rank sends
  double received = 3e-9;    ///< seconds per entry that it receives, including its own

  /// Checks the numbers. @throws invalid_argument
  void check() const {
    require_between("local seconds an element", element, 0, 1);
    require_between("local seconds an entry that is sent", sent, 0, 1);
    require_between("local seconds an entry that is received", received, 0, 1);
  }
};

/// How a gradient is exchanged.
enum class exchange_kind {
  dense,            ///< dense_mean
  gather,           ///< gradsieve::gather
  index_union,      ///< gradsieve::index_union
  leader,           ///< gradsieve::leader
  shared_choice,    ///< gradsieve::shared_choice
  reduce_scatter,   ///< gradsieve::reduce_scatter
  coded_all_reduce  ///< gradsieve::coded_all_reduce
};

/// One of the exchanges that advise() compares.
struct exchange_choice {
  std::string name;                           ///< a name for display
  exchange_kind kind = exchange_kind::dense;  ///< the kind of exchange
  double density = 1;                         ///< fraction of the elements that is selected; unused for dense
  double entry_bytes = 8;  ///< index and value; for dense those of an element, 4 or 2; unused for index_union,
                           ///< leader (4 and 4) and shared_choice (4 for a value)
  local_cost local{};      ///< for dense in 16 bits only `element` counts
  double wire = 1;  ///< factor on the link's seconds per byte, for message sizes that are faster or slower
  double returned = 2;  ///< coded_all_reduce::returned, at most 1 / density

  /// Checks the numbers. @throws invalid_argument
  void check() const {
    require_between("density of '" + name + "'", density, 0, 1);
    require_between("bytes of an entry of '" + name + "'", entry_bytes, 0, 64);
    require_between("factor on the seconds a byte of '" + name + "'", wire, 0, 1e3);
    local.check();
  }
};

/// The usual menu: dense in 32 and in 16 bits, and the library's exchanges at this density.
[[nodiscard]] inline std::vector<exchange_choice> usual_choices(double density, local_cost const& local = {}) {
  double const index = density > 0 ? 2 + std::log2(1 / density) : 0;  // bits per index of elias_fano
  return {{"dense, 32 bits", exchange_kind::dense, 1, 4, {0, 0, 0}},
          {"dense, 16 bits", exchange_kind::dense, 1, 2, {local.element / 2, 0, 0}},
          {"gather, coo", exchange_kind::gather, density, 8, local},
          {"gather, elias_fano + fp16", exchange_kind::gather, density, 2 + index / 8, local},
          {"index_union (deft)", exchange_kind::index_union, density, 8, local},
          {"leader (cyclic)", exchange_kind::leader, density, 8, local},
          {"coded_all_reduce, fp16", exchange_kind::coded_all_reduce, density, 2 + index / 8, local, 1,
           std::min(2.0, 1 / std::max(density, 1e-9))}};
}

/// The number of elements of a model, which may exceed the 2^32 - 1 that one compressor holds.
struct model_size {
  /// Elements of the largest compressor. Larger models need several, each for a group of layers (overlap).
  static constexpr std::uint64_t most_in_one = ~std::uint32_t{0};

  std::uint64_t elements = 0;     ///< of all layers
  std::uint64_t passthrough = 0;  ///< those of layers that pass through

  /// The size of a layout. Cost: O(layers).
  [[nodiscard]] static model_size of(layout const& layers, passthrough_layers const& passthrough = {}) {
    return {layers.size(), gradsieve::detail::layer_split{layers, passthrough}.passthrough_elements};
  }
  /// The size of a trace, by the bytes of its elements. Cost: O(layers log layers).
  /// @throws invalid_argument, naming the layer, if these do not divide its bytes; for a pattern that matches no layer.
  [[nodiscard]] static model_size of(trace const& layers, passthrough_layers const& passthrough = {}) {
    model_size all;
    std::vector<std::uint64_t> sizes;
    for (auto const& each : layers) {
      if (each.bytes % each.element_bytes != 0)
        throw invalid_argument("gradsieve: layer '" + each.name + "' has " + std::to_string(each.bytes) +
                               " bytes, no whole number of elements of " + std::to_string(each.element_bytes) +
                               " bytes: what is its element_bytes?");
      all.elements += each.elements();
      sizes.push_back(each.elements());
    }
    // A layout has fewer elements than some traces, so it gets small numbers that are equal if the sizes are.
    auto sorted = sizes;
    std::ranges::sort(sorted);
    std::vector<layer> names;
    for (auto const& each : layers)
      names.push_back({each.name, static_cast<std::uint64_t>(std::ranges::lower_bound(sorted, each.elements()) -
                                                             sorted.begin() + 1)});
    auto const passes = passthrough_layers{.patterns = passthrough.patterns}.of(layout{std::move(names)});
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (passes[i] || sizes[i] <= passthrough.up_to) all.passthrough += sizes[i];
    return all;
  }

  /// Elements that are selected from.
  [[nodiscard]] std::uint64_t selected() const noexcept { return elements - passthrough; }
  /// The fewest compressors that hold the elements.
  [[nodiscard]] std::uint64_t compressors() const noexcept {
    return elements == 0 ? 1 : (elements - 1) / most_in_one + 1;
  }
  /// @throws invalid_argument unless passthrough <= elements < 2^53.
  void check() const {
    require_between("elements of a model", static_cast<double>(elements), 0, 0x1p53 - 1);
    require_between("elements that pass through", static_cast<double>(passthrough), 0, static_cast<double>(elements));
  }
  friend bool operator==(model_size const&, model_size const&) = default;
};

/// A recipe as a choice: its exchange, its density, and its codec's largest message, if the exchange sends messages.
/// @throws invalid_argument if its exchange is not one of the library's.
template <class Recipe>
[[nodiscard]] exchange_choice choice_of(Recipe const& recipe, model_size const& size, local_cost const& local = {}) {
  constexpr std::pair<std::string_view, exchange_kind> known[]{{"gather", exchange_kind::gather},
                                                               {"index_union", exchange_kind::index_union},
                                                               {"leader", exchange_kind::leader},
                                                               {"shared_choice", exchange_kind::shared_choice},
                                                               {"reduce_scatter", exchange_kind::reduce_scatter},
                                                               {"coded_all_reduce", exchange_kind::coded_all_reduce}};
  size.check();
  double const density = recipe.density.most();
  std::uint64_t const parts = size.compressors();
  auto const selected = static_cast<double>(size.selected() / parts);
  auto const k = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(density * selected));
  auto const bytes = static_cast<double>(recipe.codec.max_bytes(size.elements / parts, k, 0));
  auto name = plain_text();
  name << recipe;
  for (auto const& [text, kind] : known)
    if (text == std::string_view{decltype(recipe.exchange)::name}) {
      exchange_choice made{name.str(), kind, density, std::min(bytes / static_cast<double>(k), 64.0), local};
      if constexpr (requires { recipe.exchange.returned; })
        made.returned = std::min(recipe.exchange.returned, 1 / std::max(density, 1e-9));
      return made;
    }
  throw invalid_argument("gradsieve: advise() does not know what the exchange " +
                         std::string{decltype(recipe.exchange)::name} + " costs");
}
/// As above, for a layout.
template <class Recipe>
[[nodiscard]] exchange_choice choice_of(Recipe const& recipe, layout const& layers, local_cost const& local = {}) {
  return choice_of(recipe, model_size::of(layers, recipe.passthrough), local);
}

}  // namespace tools
