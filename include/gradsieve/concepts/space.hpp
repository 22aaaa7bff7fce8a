// The concepts of spaces, and of a selector's workspace.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/core/view.hpp>

/// @defgroup spaces Spaces
/// Memory and the place where work runs: `host`, or `device` of the CUDA header; and a policy's calls there.

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

template <template <class> class>
struct class_of_one_type {};

}  // namespace detail

/// The memory and place of work: `host`, or the CUDA header's `device`. A small value that holds no gradient. Members:
/// - `workspace`: scratch memory of one compressor, made of the space and the number of elements. `buffer<T>` in it is
///   memory of the space.
/// - `step<Recipe>`: a compressor's stages and memory, see step_stages. `node_exchange`: the node's part of a
///   two_level_compressor, see the concept of that name; it may be incomplete if no two_level_compressor is made.
/// - `selector_view<Stored>`: the selector_workspace that a selector gets for a residual that is kept as `Stored`;
///   `keeps<Stored>`: true if it can be kept so.
/// - `encodes_with<Codec>`, `exchanges_with<Exchange, Codec>`, `sums_with<Codec>`: true if these policies run there.
///   A recipe asks for them; the concept cannot name them without a policy.
/// - `stream_ordered`: collectives are enqueued, and messages have a fixed size.
///
/// For parameter_exchange a space also has `parameters<T>` and `moments`. What to write for a space of one's own:
/// include/gradsieve/README.md, "Adding a space".
template <class S>
concept space = std::copyable<S> && requires(typename S::workspace const& work) {
  typename S::workspace::template buffer<float>;
  typename S::template selector_view<float>;
  typename S::node_exchange;
  typename detail::class_of_one_type<S::template step>;
  { work.where() } -> std::same_as<S const&>;
  requires std::constructible_from<typename S::workspace, S, std::uint64_t>;
  requires S::template keeps<float>;
  typename std::bool_constant<S::stream_ordered>;
};

/// Keys of sampled elements of a segment. `kth_largest(1)` is the largest; it may reorder the keys.
template <class S>
concept key_sampling = requires(S keys, std::uint64_t rank, key_type key) {
  { keys.size() } -> std::same_as<std::uint64_t>;
  { keys.kth_largest(rank) } -> std::same_as<key_type>;
  { keys.count_at_least(key) } -> std::same_as<std::uint64_t>;
  { keys.nonzero() } -> std::same_as<std::uint64_t>;
  { keys.sum_abs() } -> std::same_as<double>;
};

/// Sums over all elements of a segment, and the key of the largest magnitude.
template <class S>
concept segment_sums = requires(S const sums) {
  requires std::same_as<std::remove_cvref_t<decltype(sums.sum_abs)>, double>;
  requires std::same_as<std::remove_cvref_t<decltype(sums.sum_squares)>, double>;
  requires std::same_as<std::remove_cvref_t<decltype(sums.max_key)>, key_type>;
  requires std::same_as<std::remove_cvref_t<decltype(sums.nonzero)>, std::uint64_t>;
};

/// N sums that a workspace's add_up() computes in one pass.
template <std::size_t N>
struct whole_sums {
  std::uint64_t value[N];  ///< the sums

  /// Sum i.
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr std::uint64_t& operator[](std::size_t i) noexcept {
    return value[i];
  }
  /// Sum i.
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr std::uint64_t const& operator[](std::size_t i) const noexcept {
    return value[i];
  }
  /// Adds other sums, element by element.
  GRADSIEVE_HD constexpr void add(whole_sums const& other) noexcept {
    for (std::size_t i = 0; i < N; ++i) value[i] += other.value[i];
  }
  friend bool operator==(whole_sums const&, whole_sums const&) = default;
};

/// Calls that a selector may make on its workspace, in every space; `acc` is its segment.
/// - `sample(acc, count, seed)`: keys of about `count` elements at random places, the same for the same step. What
///   `predict` gets has nothing else, and samples what the accumulate pass will write.
/// - `collected(acc)`: the candidates of the accumulate pass, or of `collect_again(acc, lower)`: one pass.
/// - `measure(acc)`, `mean_abs(acc)`: segment_sums; a pass, unless the accumulate pass has measured, as it does where
///   norms are needed or no candidate threshold is predicted.
/// - `count_at_least(acc, key)`: elements whose key is `key` or more; a pass.
/// - `kth_largest(acc, k)`: the threshold that keeps exactly k elements, or all nonzero ones; some passes, unless the
///   candidates suffice. With `low`, a key that at least k elements reach.
/// - `compact(acc, threshold, out)`: writes the elements that a threshold keeps in index order; returns their number.
/// - The last two with `keep(value) -> bool` choose from the elements only for which it is true.
/// - `take_candidates(acc, out, body)`: all candidates in index order, with body(value) for each value; returns their
///   number. Only where collected(acc).complete.
/// - `selectable(acc)`: number of selectable elements; `take_places(acc, count, places, out)`: those of them at
///   increasing places, zeros too.
/// - `replace(values, body)`: body(value) in place of each value.
/// - `mean_of_maxima(acc)`: mean of the largest magnitudes of a segment's bins, for a selector that has bins.
/// - `add_up<N>(acc, add)`: N sums of whole numbers, to which add(value, sums) adds for each element, or at least for
///   those whose key reaches `add.least_key`, if it has such a member; a pass. `add` is copied and does not throw.
/// - `note_threshold(origin, probes)`: reports what decided the segment's threshold.
template <class W>
concept selector_workspace = requires(W& work, accumulator_ref const acc, index_type k, key_type key,
                                      threshold const at, selection_span out, keep_all keep, std::uint64_t number,
                                      view<float> values, std::span<std::uint64_t const> places,
                                      float (*body)(float), void (*add)(float, whole_sums<2>&)) {
  { work.sample(acc, number) } -> key_sampling;
  { work.sample(acc, number, number) } -> key_sampling;
  { work.collected(acc) } -> std::same_as<candidates>;
  work.collect_again(acc, key);
  { work.measure(acc) } -> segment_sums;
  { work.mean_abs(acc) } -> std::same_as<float>;
  { work.count_at_least(acc, key) } -> std::same_as<std::uint64_t>;
  { work.kth_largest(acc, k) } -> std::same_as<threshold>;
  { work.kth_largest(acc, k, key, keep) } -> std::same_as<threshold>;
  { work.compact(acc, at, out) } -> std::same_as<index_type>;
  { work.compact(acc, at, out, keep) } -> std::same_as<index_type>;
  { work.take_candidates(acc, out, body) } -> std::same_as<index_type>;
  { work.selectable(acc) } -> std::same_as<std::uint64_t>;
  { work.take_places(acc, number, places, out) } -> std::same_as<index_type>;
  work.replace(values, body);
  { work.mean_of_maxima(acc) } -> std::same_as<float>;
  { work.template add_up<2>(acc, add) } -> std::same_as<whole_sums<2>>;
  work.note_threshold(threshold_origin::estimated, int{});
};

}  // namespace gradsieve
