// Predicts whether compression is faster on a link, and from which density or bandwidth on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/plan/collectives.hpp>

#include "exchange_choice.hpp"

namespace tools {

using namespace gradsieve;

/// The cost of an exchange besides its messages on the link and the ranks' own work. The defaults are no cost: for a
/// link whose seconds were measured with messages. A link with a nominal rate needs ethernet() or numbers of your own.
struct transport_cost {
  double wire = 1;      ///< bytes on the link for each byte of a message: headers
  double byte = 0;      ///< seconds for each byte that a rank sends or receives: copies and the protocol
  double wait = 0;      ///< seconds that ranks wait for the last of them in an exchange, dense or not
  double slowdown = 1;  ///< factor on local_cost, for ranks with fewer cores than it was measured with

  /// TCP on Ethernet, for ranks with this many cores each. A full packet carries 1,448 of 1,538 bytes. A core sends or
  /// receives a byte in `byte` seconds: 0 if the network card does it, about a nanosecond if the processor runs TCP.
  /// With less than one core, ranks take turns on it and wait for each other: 30 ms for each other rank on the core, as
  /// measured with four ranks on two cores (bench/TRAINING.md). local_cost's defaults are for two cores; more cores
  /// change nothing, as memory is the limit.
  [[nodiscard]] static transport_cost ethernet(double cores = 2, double byte = 0) {
    require_between("cores of a rank", cores, 1e-3, 1e6);
    double const share = std::min(cores, 1.0);
    return {1538.0 / 1448, byte / share, 0.03 * (1 / share - 1), 2 / std::min(cores, 2.0)};
  }

  /// Checks the numbers. @throws invalid_argument
  void check() const {
    require_between("bytes on the link for each of a message", wire, 0, 1e3);
    require_between("seconds to send or receive a byte", byte, 0, 1);
    require_between("seconds in which ranks wait for the last", wait, 0, 1e6);
    require_between("slowdown of local work", slowdown, 0, 1e6);
  }
  friend bool operator==(transport_cost const&, transport_cost const&) = default;
};

/// The predicted time of one choice for a gradient.
struct predicted_exchange {
  exchange_choice choice;  ///< the choice, from the menu
  double exchange = 0;     ///< seconds on the link, for waiting and for moving bytes
  double local = 0;        ///< seconds of computing
  double speedup = 1;      ///< relative to dense in 32 bits, or to the first dense choice
  /// Seconds in all.
  [[nodiscard]] double total() const noexcept { return exchange + local; }
};

/// The result of advise().
struct advice {
  std::vector<predicted_exchange> choices;  ///< in the menu's order
  std::size_t best = 0;                     ///< the fastest of them
  std::size_t best_sparse = 0;              ///< the fastest that is not dense
  bool compress = false;                    ///< whether the fastest is not dense
  double break_even_density = 0;            ///< below it best_sparse is faster than the fastest dense choice; 0: never
  double least_bandwidth = 0;  ///< bytes per second; above it best_sparse is faster than every dense choice; 0: no
                               ///< lower limit; infinity: never
  double break_even_bandwidth = 0;  ///< bytes per second; below it likewise; infinity: no upper limit; 0: never
  std::string sentence;             ///< the result in words
};

namespace parts {

inline constexpr double infinite = bit_cast<double>(gradsieve::detail::infinity_bits);  // also with -ffast-math

/// Link and local seconds of a choice, after the backward pass and without overlap.
[[nodiscard]] inline std::pair<double, double> seconds_of(exchange_choice const& it, model_size const& size,
                                                          int workers, network_link const& link,
                                                          transport_cost const& transport) {
  auto const all = static_cast<double>(size.elements);
  auto const selected = static_cast<double>(size.selected());
  network_link loaded = link;
  loaded.beta =
      it.wire * link.beta * transport.wire + 2 * transport.byte;  // full duplex: sends and receives overlap
  auto const on_link = [](affine const& cost, double bytes, double calls = 1) {
    return bytes > 0 ? calls * cost.a + cost.b * bytes : 0;
  };
  affine const ring = ring_cost(loaded, workers);
  double const wait = workers > 1 ? transport.wait : 0;
  if (it.kind == exchange_kind::dense)
    return {wait + on_link(ring, all * it.entry_bytes), transport.slowdown * it.local.element * all};
  double const k = selected * it.density;
  double sent = k;
  double received = k;
  affine cost;
  switch (it.kind) {
    case exchange_kind::dense:
      break;
    case exchange_kind::gather:
      cost = gather_cost(loaded, workers, it.density, it.entry_bytes);
      received = k * workers;
      break;
    case exchange_kind::index_union:
      cost = index_union_cost(loaded, workers, it.density);
      sent = k / workers;
      break;
    case exchange_kind::leader:
      cost = leader_cost(loaded, workers, it.density);
      break;
    case exchange_kind::shared_choice:
      cost = shared_choice_cost(loaded, workers, it.density);
      break;
    case exchange_kind::reduce_scatter:
      cost = reduce_scatter_cost(loaded, workers, it.density, it.entry_bytes);
      break;
    case exchange_kind::coded_all_reduce:
      cost = coded_all_reduce_cost(loaded, workers, it.density, it.entry_bytes, it.returned);
      received = k * (1 + std::min(it.returned, 1.0 * workers));
      break;
  }
  double const seconds = wait + on_link(ring, 4 * static_cast<double>(size.passthrough)) +
                         on_link(cost, 4 * selected, static_cast<double>(size.compressors()));
  double const local = it.local.element * all + it.local.sent * sent + it.local.received * received;
  return {seconds, transport.slowdown * local};
}

/// The seconds of a choice as startup + slope * the link's seconds per byte.
[[nodiscard]] inline affine line_of(exchange_choice const& it, model_size const& size, int workers,
                                    network_link const& link, transport_cost const& transport) {
  auto const [exchange, local] = seconds_of(it, size, workers, {link.alpha, 0, link.gamma}, transport);
  return {exchange + local, seconds_of(it, size, workers, {0, 1, 0}, {transport.wire, 0, 0, 0}).first};
}

/// The range of seconds per byte in which one line lies below all others; from >= to: empty.
struct beta_interval {
  double from = 0;
  double to = infinite;

  void below(affine const& mine, affine const& other) {
    double const startup = mine.a - other.a;
    double const slope = mine.b - other.b;
    if (slope < 0)
      from = std::max(from, startup / -slope);
    else if (slope > 0)
      to = std::min(to, -startup / slope);
    else if (startup >= 0)
      to = 0;
  }
};

}  // namespace parts

/// Predicts the time of each choice of a menu for a gradient of that many elements, `workers` ranks and such links,
/// with one exchange after the backward pass (for a model of 2^32 elements or more: the fewest exchanges that hold it):
/// collectives on rings, the transport's own cost, and the local cost. Layers that pass through are all-reduced in 32
/// bits. Local. Cost: O(choices).
/// @throws invalid_argument unless workers >= 1, the menu has a dense and another choice, and all numbers are in range.
[[nodiscard]] inline advice advise(model_size const& size, int workers, network_link const& link,
                                   std::span<exchange_choice const> menu, transport_cost const& transport = {}) {
  (void)gradsieve::detail::workers_of(link, workers);
  size.check();
  transport.check();
  for (auto const& each : menu) each.check();
  advice made;
  std::size_t const none = menu.size();
  std::size_t first_dense = none, dense = none, sparse = none;
  for (std::size_t i = 0; i < menu.size(); ++i) {
    auto const [exchange, local] = parts::seconds_of(menu[i], size, workers, link, transport);
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

  // The time is linear in the density, and in the seconds per byte.
  auto const at_density = [&](double density) {
    auto at = menu[sparse];
    at.density = density;
    auto const [exchange, local] = parts::seconds_of(at, size, workers, link, transport);
    return exchange + local;
  };
  double const at_zero = at_density(0);
  double const at_one = at_density(1);
  if (at_zero < dense_seconds)
    made.break_even_density = at_one <= dense_seconds ? 1 : (dense_seconds - at_zero) / (at_one - at_zero);
  parts::beta_interval pays;
  auto const line = parts::line_of(menu[sparse], size, workers, link, transport);
  for (auto const& each : menu)
    if (each.kind == exchange_kind::dense)
      pays.below(line, parts::line_of(each, size, workers, link, transport));
  bool const never = pays.from >= pays.to;
  bool const no_least = !is_finite(pays.to);  // on the slowest links as well
  bool const no_most = pays.from <= 0;
  made.least_bandwidth = never ? parts::infinite : no_least ? 0 : 1 / pays.to;
  made.break_even_bandwidth = never ? 0 : no_most ? parts::infinite : 1 / pays.from;

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
  auto const gbit = [](double bytes_a_second) { return 8e-9 * bytes_a_second; };
  text << menu[sparse].name;
  if (never)
    text << " pays on no link at this density";
  else if (no_least && no_most)
    text << " pays on any link";
  else if (no_least)
    text << " pays on links below " << gbit(made.break_even_bandwidth) << " Gbit/s";
  else if (no_most)
    text << " pays on links above " << gbit(made.least_bandwidth) << " Gbit/s";
  else
    text << " pays on links between " << gbit(made.least_bandwidth) << " and " << gbit(made.break_even_bandwidth)
         << " Gbit/s";
  if (made.break_even_density > 0) text << ", on this one below a density of " << made.break_even_density;
  text << '.';
  if (size.compressors() > 1)
    text << " A compressor holds fewer than 2^32 elements: this model takes " << size.compressors() << " or more.";
  made.sentence = text.str();
  return made;
}

/// As above, for a layout.
[[nodiscard]] inline advice advise(layout const& layers, int workers, network_link const& link,
                                   std::span<exchange_choice const> menu, passthrough_layers const& passthrough = {},
                                   transport_cost const& transport = {}) {
  return advise(model_size::of(layers, passthrough), workers, link, menu, transport);
}

/// As above, for one recipe and for dense exchanges in 32 and 16 bits.
template <class Recipe>
  requires requires(Recipe const& recipe) { recipe.codec.max_bytes(1, 1, 0); }
[[nodiscard]] advice advise(layout const& layers, int workers, network_link const& link, Recipe const& recipe,
                            local_cost const& local = {}, transport_cost const& transport = {}) {
  auto menu = usual_choices(0, local);
  menu.resize(2);
  menu.push_back(choice_of(recipe, layers, local));
  return advise(layers, workers, link, std::span<exchange_choice const>{menu}, recipe.passthrough, transport);
}

}  // namespace tools
