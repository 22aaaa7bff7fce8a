// Costs of collectives from a link's latency and bandwidth, and links from measured costs.
#pragma once

#include <algorithm>
#include <bit>
#include <utility>

#include <gradsieve/core/error.hpp>
#include <gradsieve/plan/cost.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One full-duplex link, and the arithmetic at its end.
struct network_link {
  double alpha = 0;  ///< seconds per message
  double beta = 0;   ///< seconds per byte
  double gamma = 0;  ///< seconds per byte for adding values

  /// Checks all. @throws invalid_argument unless they are finite and not negative.
  void check() const {
    require_between("alpha of a link, seconds a message,", alpha, 0, 1e6);
    require_between("beta of a link, seconds a byte,", beta, 0, 1e6);
    require_between("gamma of a link, seconds to reduce a byte,", gamma, 0, 1e6);
  }
  friend bool operator==(network_link const&, network_link const&) = default;
};

namespace detail {

inline constexpr int most_workers = 1 << 24;

/// The number of workers. @throws invalid_argument unless 1 <= workers <= 2^24, or if the link is invalid.
inline double workers_of(network_link const& each, int workers) {
  each.check();
  require_between("number of workers", workers, 1, most_workers);
  return workers;
}

/// The number of rounds, ceil(log2 workers).
inline double rounds(int workers) { return std::bit_width(static_cast<unsigned>(workers) - 1); }

}  // namespace detail

// ---- Dense all-reduce --------------------------------------------------------------------------------------

/// Reduce-scatter and all-gather around a ring. One worker costs nothing. @throws invalid_argument, as all functions
/// below, unless 1 <= workers <= 2^24 and the link is finite and not negative.
[[nodiscard]] inline affine ring_cost(network_link const& each, int workers) {
  double const p = detail::workers_of(each, workers);
  return {2 * (p - 1) * each.alpha, (p - 1) / p * (2 * each.beta + each.gamma)};
}

/// Two complementary trees, each for half of the bytes, pipelined. A byte passes a port `passes` times: 2 if the link
/// carries both trees, 1 in the publication.
[[nodiscard]] inline affine double_tree_cost(network_link const& each, int workers, double passes = 2) {
  (void)detail::workers_of(each, workers);
  require_between("passes of a byte through a port", passes, 1, 4);
  if (workers == 1) return {};
  return {2 * detail::rounds(workers) * each.alpha, passes * each.beta + each.gamma};
}

// ---- Sparse exchanges --------------------------------------------------------------------------------------
// Bytes are those of the group's dense binary32 gradients, of which the fraction `density` is selected; `entry_bytes`:
// of an entry in the codec. Each exchange begins with an all-gather of 32 bytes per worker, of which only the startups
// count. Selections are assumed to be spread evenly.

namespace detail {

/// The number of workers, and the startups of a handshake.
[[nodiscard]] inline std::pair<double, double> handshake(network_link const& each, int workers, double density,
                                                         double entry_bytes = 8) {
  double const p = workers_of(each, workers);
  require_between("density", density, 0, 1);
  require_between("bytes of an entry", entry_bytes, 0, 64);
  return {p, (p - 1) * each.alpha};
}

}  // namespace detail

/// `gather`: an all-gather around a ring; every worker receives the entries of all others.
[[nodiscard]] inline affine gather_cost(network_link const& each, int workers, double density, double entry_bytes = 8) {
  auto const [p, startups] = detail::handshake(each, workers, density, entry_bytes);
  return {2 * startups, (p - 1) * density * entry_bytes / 4 * each.beta};
}

/// `index_union` with `deft`: an all-reduce of the norms, the handshake, an all-gather of the disjoint indices (4 bytes
/// each), an all-reduce of the values. Only its startups grow with the number of workers.
[[nodiscard]] inline affine index_union_cost(network_link const& each, int workers, double density) {
  auto const [p, startups] = detail::handshake(each, workers, density);
  affine const reduce = ring_cost(each, workers);
  return {2 * reduce.a + 2 * startups, density * ((p - 1) / p * each.beta + reduce.b)};
}

/// `leader`: a pipelined tree for one worker's indices, an all-reduce of the values.
[[nodiscard]] inline affine leader_cost(network_link const& each, int workers, double density) {
  auto const [p, startups] = detail::handshake(each, workers, density);
  affine const reduce = ring_cost(each, workers);
  double const sent = p == 1 ? 0 : each.beta;
  return {startups + detail::rounds(workers) * each.alpha + reduce.a, density * (sent + reduce.b)};
}

/// `shared_choice`: an all-reduce of the values.
[[nodiscard]] inline affine shared_choice_cost(network_link const& each, int workers, double density) {
  auto const [p, startups] = detail::handshake(each, workers, density);
  affine const reduce = ring_cost(each, workers);
  return {startups + reduce.a, density * reduce.b};
}

/// `reduce_scatter`: two all-to-alls, of sizes and of entries, with each other worker in turn.
[[nodiscard]] inline affine reduce_scatter_cost(network_link const& each, int workers, double density,
                                                double entry_bytes = 8) {
  auto const [p, startups] = detail::handshake(each, workers, density, entry_bytes);
  return {3 * startups, (p - 1) / p * density * entry_bytes / 4 * each.beta};
}

/// `coded_all_reduce`: a `reduce_scatter`, and an all-gather of `returned` times the selected entries, at most those of
/// all ranks. Above a density of 1 / `returned` give 1 / density instead.
[[nodiscard]] inline affine coded_all_reduce_cost(network_link const& each, int workers, double density,
                                                  double entry_bytes = 8, double returned = 2) {
  affine const scatter = reduce_scatter_cost(each, workers, density, entry_bytes);
  affine const back = gather_cost(each, workers, density / workers, entry_bytes);
  return {scatter.a + back.a, scatter.b + std::min(returned, 1.0 * workers) * back.b};
}

// ---- From a measured cost to other numbers of workers ---------------------------------------------------------

/// The link for which ring_cost(link, workers) equals the fitted cost; its beta includes gamma. @throws
/// invalid_argument unless workers >= 2 and the fit is finite and not negative.
[[nodiscard]] inline network_link link_of_ring(affine const& fit, int workers) {
  fit.check();
  require_between("workers of the measured cost", workers, 2, detail::most_workers);
  double const p = workers;
  return {fit.a / (2 * (p - 1)), fit.b * p / (2 * (p - 1)), 0};
}

/// The link for which double_tree_cost(link, workers) equals the fitted cost: a tree's startups and a ring's bytes.
[[nodiscard]] inline network_link link_of_double_tree(affine const& fit, int workers) {
  fit.check();
  require_between("workers of the measured cost", workers, 2, detail::most_workers);
  return {fit.a / (2 * detail::rounds(workers)), fit.b / 2, 0};
}

}  // namespace gradsieve
