// Predicts whether compression pays on a link, and from which density or bandwidth on.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/schedule/collectives.hpp>

namespace gradsieve {

/// What a rank computes besides the collective. The defaults are of a host with two cores; measure yours with
/// bench/report.sh, or with measure_exchange() on a communicator of one rank.
struct local_cost {
  double element = 5e-10;  ///< seconds an element: accumulate, select, write the update
  double sent = 1.3e-8;    ///< seconds an entry that this rank sends
  double received = 7e-9;  ///< seconds an entry that it receives, its own included

  void check() const {
    require_between("local seconds an element", element, 0, 1);
    require_between("local seconds an entry that is sent", sent, 0, 1);
    require_between("local seconds an entry that is received", received, 0, 1);
  }
};

/// How a gradient is exchanged.
enum class exchange_kind {
  dense,           ///< dense_mean
  gather,          ///< gradsieve::gather
  index_union,     ///< gradsieve::index_union
  leader,          ///< gradsieve::leader
  shared_choice,   ///< gradsieve::shared_choice
  reduce_scatter,  ///< gradsieve::reduce_scatter
  ok_topk,         ///< gradsieve::ok_topk
  gtopk            ///< gradsieve::gtopk
};

/// One of the exchanges that advise() compares.
struct exchange_choice {
  std::string name;                           ///< for people
  exchange_kind kind = exchange_kind::dense;  ///< what is exchanged how
  double density = 1;                         ///< fraction of the elements that is selected; unused for dense
  double entry_bytes = 8;  ///< index and value together; for dense those of an element, 4 or 2; unused for index_union,
                           ///< leader (4 and 4) and shared_choice (4 of a value)
  local_cost local{};      ///< for dense, in 16 bits, `element` alone counts

  /// Checks the numbers. @throws invalid_argument
  void check() const {
    require_between("density of '" + name + "'", density, 0, 1);
    require_between("bytes of an entry of '" + name + "'", entry_bytes, 0, 64);
    local.check();
  }
};

/// The usual menu: dense in 32 and in 16 bits, and the library's exchanges at this density.
[[nodiscard]] inline std::vector<exchange_choice> usual_choices(double density, local_cost const& local = {}) {
  double const index = density > 0 ? 2 + std::log2(1 / density) : 0;  // bits, as elias_fano takes
  return {{"dense, 32 bits", exchange_kind::dense, 1, 4, {0, 0, 0}},
          {"dense, 16 bits", exchange_kind::dense, 1, 2, {local.element / 2, 0, 0}},
          {"gather, coo", exchange_kind::gather, density, 8, local},
          {"gather, elias_fano + fp16", exchange_kind::gather, density, 2 + index / 8, local},
          {"index_union (deft)", exchange_kind::index_union, density, 8, local},
          {"leader (cyclic)", exchange_kind::leader, density, 8, local}};
}

/// A recipe as a choice: its exchange, its density, and its codec's largest message, if the exchange sends messages.
/// @throws invalid_argument if its exchange is none of the library's.
template <class Recipe>
[[nodiscard]] exchange_choice choice_of(Recipe const& recipe, layout const& layers, local_cost const& local = {}) {
  constexpr std::pair<std::string_view, exchange_kind> known[]{{"gather", exchange_kind::gather},
                                                               {"index_union", exchange_kind::index_union},
                                                               {"leader", exchange_kind::leader},
                                                               {"shared_choice", exchange_kind::shared_choice},
                                                               {"reduce_scatter", exchange_kind::reduce_scatter},
                                                               {"ok_topk", exchange_kind::ok_topk},
                                                               {"gtopk", exchange_kind::gtopk}};
  layer_split const split{layers, recipe.passthrough};
  double const density = recipe.density.most();
  auto const k =
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(density * static_cast<double>(split.selected_elements)));
  auto const bytes = static_cast<double>(recipe.codec.max_bytes(layers.size(), k, 0));
  auto name = plain_text();
  name << recipe;
  for (auto const& [text, kind] : known)
    if (text == std::string_view{decltype(recipe.exchange)::name})
      return {name.str(), kind, density, std::min(bytes / static_cast<double>(k), 64.0), local};
  throw invalid_argument("gradsieve: advise() does not know what the exchange " +
                         std::string{decltype(recipe.exchange)::name} + " costs");
}

/// What one choice takes for a gradient.
struct predicted_exchange {
  exchange_choice choice;  ///< from the menu
  double exchange = 0;     ///< seconds on the link
  double local = 0;        ///< seconds of computing
  double speedup = 1;      ///< over dense in 32 bits, or over the first dense choice
  /// Seconds in all.
  [[nodiscard]] double total() const noexcept { return exchange + local; }
};

/// What advise() found.
struct advice {
  std::vector<predicted_exchange> choices;  ///< in the menu's order
  std::size_t best = 0;                     ///< the fastest of them
  std::size_t best_sparse = 0;              ///< the fastest that is not dense
  bool compress = false;                    ///< whether the fastest is not dense
  double break_even_density = 0;            ///< below it, best_sparse is faster than the fastest dense choice; 0: never
  double break_even_bandwidth = 0;          ///< bytes a second; below it likewise; infinity: always; 0: never
  std::string sentence;                     ///< the result in words
};

namespace schedule_detail {

struct elements {
  double all = 0;
  double selected = 0;
};

/// Link and local seconds of a choice, after the backward pass, with nothing beside it.
[[nodiscard]] inline std::pair<double, double> seconds_of(exchange_choice const& it, elements const& n, int workers,
                                                          network_link const& link) {
  if (it.kind == exchange_kind::dense)
    return {ring_cost(link, workers)(static_cast<std::uint64_t>(n.all * it.entry_bytes)), it.local.element * n.all};
  auto const selected = static_cast<std::uint64_t>(4 * n.selected);
  double const k = n.selected * it.density;
  double seconds = ring_cost(link, workers)(static_cast<std::uint64_t>(4 * (n.all - n.selected)));
  double sent = k;
  double received = k;
  switch (it.kind) {
    case exchange_kind::dense:
      break;
    case exchange_kind::gather:
      seconds += gather_cost(link, workers, it.density, it.entry_bytes)(selected);
      received = k * workers;
      break;
    case exchange_kind::index_union:
      seconds += index_union_cost(link, workers, it.density)(selected);
      sent = k / workers;
      break;
    case exchange_kind::leader:
      seconds += leader_cost(link, workers, it.density)(selected);
      break;
    case exchange_kind::shared_choice:
      seconds += shared_choice_cost(link, workers, it.density)(selected);
      break;
    case exchange_kind::reduce_scatter:
      seconds += reduce_scatter_cost(link, workers, it.density, it.entry_bytes)(selected);
      break;
    case exchange_kind::ok_topk:
      seconds += ok_topk_cost(link, workers, it.density, it.entry_bytes)(selected);
      sent = k * (1 + 1.0 / workers);
      received = 2 * k;
      break;
    case exchange_kind::gtopk: {
      double const rounds = schedule_detail::rounds(workers);
      seconds += gtopk_cost(link, workers, it.density, it.entry_bytes)(selected);
      sent = k * (1 + rounds);
      received = k * (1 + rounds);
      break;
    }
  }
  return {seconds, it.local.element * n.all + it.local.sent * sent + it.local.received * received};
}

[[nodiscard]] inline double total_seconds(exchange_choice const& it, elements const& n, int workers,
                                          network_link const& link) {
  auto const [exchange, local] = seconds_of(it, n, workers, link);
  return exchange + local;
}

}  // namespace schedule_detail

/// Predicts the time of each choice of a menu for a gradient of these layers, `workers` ranks and such links, with one
/// exchange after the backward pass: collectives on rings, and the local cost. Layers that pass through are all-reduced
/// in 32 bits. Local. Cost: O(layers + choices).
/// @throws invalid_argument unless workers >= 1, the menu has a dense and another choice, and all numbers are in range.
[[nodiscard]] inline advice advise(layout const& layers, int workers, network_link const& link,
                                   std::span<exchange_choice const> menu, passthrough_layers const& passthrough = {}) {
  using schedule_detail::total_seconds;
  (void)schedule_detail::workers_of(link, workers);
  for (auto const& each : menu) each.check();
  layer_split const split{layers, passthrough};
  schedule_detail::elements const n{static_cast<double>(layers.size()), static_cast<double>(split.selected_elements)};
  advice made;
  std::size_t const none = menu.size();
  std::size_t first_dense = none, dense = none, sparse = none;
  for (std::size_t i = 0; i < menu.size(); ++i) {
    auto const [exchange, local] = schedule_detail::seconds_of(menu[i], n, workers, link);
    made.choices.push_back({menu[i], exchange, local});
    auto& best = menu[i].kind == exchange_kind::dense ? dense : sparse;
    if (best == none || exchange + local < made.choices[best].total()) best = i;
    if (menu[i].kind == exchange_kind::dense && first_dense == none) first_dense = i;
  }
  if (dense == none || sparse == none)
    throw invalid_argument("gradsieve: advise() compares: the menu needs a dense choice and one that is not");
  for (auto& each : made.choices)
    each.speedup = each.total() > 0 ? made.choices[first_dense].total() / each.total() : 1;
  double const dense_seconds = made.choices[dense].total();
  double const sparse_seconds = made.choices[sparse].total();
  made.best_sparse = sparse;
  made.compress = sparse_seconds < dense_seconds;
  made.best = made.compress ? sparse : dense;

  // All is linear in the density, and in the seconds a byte.
  auto at = menu[sparse];
  at.density = 0;
  double const at_zero = total_seconds(at, n, workers, link);
  at.density = 1;
  double const at_one = total_seconds(at, n, workers, link);
  if (at_zero < dense_seconds)
    made.break_even_density = at_one <= dense_seconds ? 1 : (dense_seconds - at_zero) / (at_one - at_zero);
  auto const line = [&](std::size_t i) {
    auto free = link;
    free.beta = 0;
    double const startup = total_seconds(menu[i], n, workers, free);
    free.beta = 1e-6;
    return std::pair{startup, (total_seconds(menu[i], n, workers, free) - startup) / 1e-6};
  };
  auto const [dense_startup, dense_slope] = line(dense);
  auto const [sparse_startup, sparse_slope] = line(sparse);
  if (sparse_startup <= dense_startup && sparse_slope < dense_slope)
    made.break_even_bandwidth = std::numeric_limits<double>::max();
  else if (sparse_slope < dense_slope)
    made.break_even_bandwidth = (dense_slope - sparse_slope) / (sparse_startup - dense_startup);

  auto const time = [](double seconds) {
    auto text = plain_text();
    text.precision(3);
    text << (seconds < 1 ? 1e3 * seconds : seconds) << (seconds < 1 ? " ms" : " s");
    return text.str();
  };
  auto text = plain_text();
  text.precision(3);
  text << (made.compress ? "Compress: " : "Do not compress: ") << menu[made.best].name << " takes "
       << time(made.choices[made.best].total()) << ", " << menu[made.compress ? dense : sparse].name << ' '
       << time(made.compress ? dense_seconds : sparse_seconds) << ". ";
  if (made.break_even_bandwidth <= 0)
    text << menu[sparse].name << " pays on no link at this density";
  else if (made.break_even_bandwidth >= std::numeric_limits<double>::max())
    text << menu[sparse].name << " pays on any link";
  else
    text << menu[sparse].name << " pays on links below " << 8e-9 * made.break_even_bandwidth << " Gbit/s";
  if (made.break_even_density > 0) text << ", on this one below a density of " << made.break_even_density;
  made.sentence = text.str() + '.';
  return made;
}

/// The same for one recipe and for dense exchanges in 32 and 16 bits.
template <class Recipe>
  requires requires(Recipe const& recipe) { recipe.codec.max_bytes(1, 1, 0); }
[[nodiscard]] advice advise(layout const& layers, int workers, network_link const& link, Recipe const& recipe,
                            local_cost const& local = {}) {
  auto menu = usual_choices(0, local);
  menu.resize(2);
  menu.push_back(choice_of(recipe, layers, local));
  return advise(layers, workers, link, std::span<exchange_choice const>{menu}, recipe.passthrough);
}

}  // namespace gradsieve
