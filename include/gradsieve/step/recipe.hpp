// The policies of one compressor, and the rules of which fit together.
#pragma once

#include <concepts>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <gradsieve/codec/coo.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/density.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/exchange/gather.hpp>
#include <gradsieve/partitioner/whole.hpp>
#include <gradsieve/residual/error_feedback.hpp>
#include <gradsieve/selector/radix.hpp>

/// @cond internal
namespace gradsieve::inline GRADSIEVE_ABI::detail {

// Checks for mistakes that keep a type from being a policy, one for each, so that a compile error can name it.

// ---- Selectors: checks that a member exists in any form, and that it can be called ----------------------------

template <class P, class W>
concept names_fit = requires { &P::fit; } || requires { &P::template fit<W>; } ||
                    requires(P& p, W& work, accumulator_ref const acc, index_type k) { p.fit(work, acc, k); };
template <class P, class W>
concept names_select = requires { &P::select; } || requires { &P::template select<W>; } ||
                       requires(P& p, W& work, accumulator_ref const acc, index_type k, selection_span out) {
                         p.select(work, acc, k, out);
                       };
template <class P>
concept names_bin_length = requires { &P::bin_length; } || requires(P& p, layer const& each) { p.bin_length(each); };

template <class P, class W>
concept calls_fit = requires(P const p, W& work, accumulator_ref const acc, index_type k) {
  requires !std::is_void_v<decltype(p.fit(work, acc, k))>;
};
template <class P, class W>
using fitted = decltype(std::declval<P const&>().fit(std::declval<W&>(), accumulator_ref{}, index_type{}));
template <class P, class W>
concept calls_keep = requires(P const p, float value, fitted<P, W> const& threshold) {
  { p.keep(value, threshold) } -> std::same_as<bool>;
};
template <class P, class W>
concept keeps_without_throwing = requires(P const p, float value, fitted<P, W> const& threshold) {
  { p.keep(value, threshold) } noexcept;
};

template <class P, class W>
inline constexpr bool is_some_selector =
    names_fit<P, W> || names_select<P, W> || names_bin_length<P> || choosing_members<P> || !choose_fits<P>;
/// True if a policy has `fit` and is of no other family: only then are its fit and keep checked.
template <class P, class W>
inline constexpr bool only_fits =
    names_fit<P, W> && !direct_selector<P, W> && !bin_selector<P> && !choosing_members<P>;
template <class P, class W>
inline constexpr bool keep_is_there = !only_fits<P, W> || !calls_fit<P, W> || calls_keep<P, W>;
template <class P, class W>
inline constexpr bool keep_is_noexcept =
    !only_fits<P, W> || !calls_fit<P, W> || !calls_keep<P, W> || keeps_without_throwing<P, W>;
template <class P, class W>
inline constexpr bool select_is_called = !names_select<P, W> || direct_selector<P, W> || !policy<P>;
template <class P>
inline constexpr bool bins_are_called = !names_bin_length<P> || bin_selector<P> || !policy<P>;

/// True if one of the checks above has found a mistake.
template <class P, class W>
inline constexpr bool selector_fault_is_named =
    !policy<P> || !is_some_selector<P, W> || (only_fits<P, W> && !calls_fit<P, W>) || !keep_is_there<P, W> ||
    !keep_is_noexcept<P, W> || !select_is_called<P, W> || !bins_are_called<P>;

// ---- Partitioners ----------------------------------------------------------------------------------------------

template <class P>
concept names_exchange = requires { typename P::default_exchange; };
template <class P>
concept calls_split =
    requires(P const p, std::span<range const> layers, segment_list& list) { p.split(layers, int{}, list); };
template <class P>
concept calls_assign =
    requires(P const p, std::span<segment> segments, std::span<double const> norms, step_budget const budget,
             partition_scratch& scratch) { p.assign(segments, norms, budget, scratch); };
template <class P>
concept says_promises = requires { requires std::same_as<decltype(P::traits), partitioner_traits const>; };

/// The exchange of a recipe that names none.
template <class P>
struct exchange_of {
  static_assert(names_exchange<P>,
                "recipe.partitioner needs using default_exchange = ..., the exchange of a recipe "
                "that names none, such as gradsieve::gather");
  using type = gather;  // so that this is the only error
};
template <names_exchange P>
struct exchange_of<P> {
  using type = typename P::default_exchange;
};

}  // namespace gradsieve::detail
/// @endcond

namespace gradsieve::inline GRADSIEVE_ABI {

/// What a gradient element that is NaN or infinite, or by which the residual would overflow, does to its step.
enum class non_finite {
  skip,  ///< the element keeps its residual, counts as zero, and is counted in the report
  fail   ///< the step throws non_finite_gradient on every rank before anything changes; costs a reading pass
};

/// The policies of a compressor, equal on all ranks. Name those that you change, in order: `recipe{.density = 0.001,
/// .selector = laplacian{}, .partitioner = deft{}}`. What does not fit together does not compile; see compatible.
template <class Selector = radix, class Partitioner = whole, class Residual = error_feedback, class Codec = coo,
          class Exchange = typename detail::exchange_of<Partitioner>::type>
struct recipe {
  density_schedule density = 0.01;              ///< fraction of the elements to send, step by step
  Selector selector{};                          ///< which entries are sent
  Partitioner partitioner{};                    ///< which rank selects where, and how many
  Residual residual{};                          ///< what stays of values that are not sent
  Codec codec{};                                ///< entries as bytes
  Exchange exchange{};                          ///< the ranks' selections into one update
  passthrough_layers passthrough{};             ///< layers that are all-reduced in full
  non_finite on_non_finite = non_finite::skip;  ///< what a NaN or infinity does

  friend bool operator==(recipe const&, recipe const&) = default;

  friend std::ostream& operator<<(std::ostream& out, recipe const& it) {
    plain_output const plain{out};
    out << "density " << it.density;
    it.each_policy([&](auto const& policy) { print(out << ", ", policy); });
    return out << ", " << it.passthrough << (it.on_non_finite == non_finite::fail ? ", fails on non-finite" : "");
  }

  /// Calls gradsieve::check() for all. @throws invalid_argument if the density leaves [0, 1] or a value makes no sense.
  void check() const {
    gradsieve::check(density);
    each_policy([](auto const& policy) { gradsieve::check(policy); });
  }

  /// A hash of all policies' names and fields, the same on every machine. Ranks compare it in the first exchange.
  [[nodiscard]] std::uint64_t hash() const {
    fingerprint all;
    gradsieve::add_to(all, density);
    each_policy([&](auto const& policy) { gradsieve::add_to(all, policy); });
    gradsieve::add_to(all, passthrough);
    gradsieve::add_to(all, on_non_finite);
    return all.value();
  }

 private:
  void each_policy(auto const& f) const {
    f(selector), f(partitioner), f(residual), f(codec), f(exchange);
  }
};

namespace detail {

template <class R>
concept has_policies = requires { R::selector; } && requires { R::exchange; };

template <class Recipe>
[[nodiscard]] std::string describe_recipe(Recipe const& recipe, layout const& layers) {
  auto out = plain_text();
  out << recipe << "; " << describe_passing(layers, recipe.passthrough);
  return out.str();
}

/// Every rule for a recipe in a space. The compiler prints the sentence of a broken rule.
template <class Recipe, class Space>
struct recipe_rules {
  using selector_type = decltype(Recipe::selector);
  using partitioner_type = decltype(Recipe::partitioner);
  using residual_type = decltype(Recipe::residual);
  using codec_type = decltype(Recipe::codec);
  using exchange_type = decltype(Recipe::exchange);
  using view = typename Space::template selector_view<stored_t<residual_type>>;

  // Required members. On a device, what a step calls of a selector and of a residual store is marked GRADSIEVE_HD.
  static_assert(policy<selector_type>,
                "recipe.selector must be a plain value: default-constructible, trivially copyable and comparable (bool "
                "operator==(...) const = default)");
  static_assert(is_some_selector<selector_type, view>,
                "recipe.selector needs fit(workspace, accumulator, k) and a noexcept keep(value, threshold), or "
                "select(workspace, accumulator, k, out), or choose(accumulator, candidates, k) and "
                "settle(accumulator, candidates, k, threshold), or bin_length(layer) and a noexcept threshold_of(bin)");
  static_assert(!only_fits<selector_type, view> || calls_fit<selector_type, view>,
                "recipe.selector's fit must be fit(workspace, accumulator_ref accumulator, index_type k) const, and "
                "return a threshold; on a device it is marked GRADSIEVE_HD");
  static_assert(
      keep_is_there<selector_type, view>,
      "recipe.selector has fit and needs bool keep(float value, threshold) const noexcept, where threshold is "
      "what fit returns");
  static_assert(keep_is_noexcept<selector_type, view>, "recipe.selector's keep must be noexcept");
  static_assert(!threshold_selector<selector_type, view> || !(direct_selector<selector_type, view> ||
                    bin_selector<selector_type> || choosing_members<selector_type>),
                "recipe.selector has fit and keep, and another form, perhaps inherited, that would displace them");
  static_assert(select_is_called<selector_type, view>,
                "recipe.selector's select must be index_type select(workspace, accumulator_ref accumulator, index_type "
                "k, selection_span out) const; on a device it is marked GRADSIEVE_HD");
  static_assert(bins_are_called<selector_type>,
                "recipe.selector's bins need std::uint32_t bin_length(layer const&) const and threshold "
                "threshold_of(bin) const noexcept");
  static_assert(selector<selector_type, view> || selector_fault_is_named<selector_type, view>,
                "recipe.selector is no selector here: what a step calls on a device is marked GRADSIEVE_HD");
  static_assert(policy<partitioner_type>,
                "recipe.partitioner must be a plain value: default-constructible, trivially copyable and comparable "
                "(bool operator==(...) const = default)");
  static_assert(names_exchange<partitioner_type>,
                "recipe.partitioner needs using default_exchange = ..., the exchange of a recipe that names none");
  static_assert(!has_stray_promise<partitioner_type>,
                "recipe.partitioner has needs_norms, disjoint, rotates, within_layers or single_owner as a member of its "
                "own, which nothing reads: they are fields of its static constexpr partitioner_traits traits");
  static_assert(says_promises<partitioner_type>,
                "recipe.partitioner needs static constexpr partitioner_traits traits{...}, what it promises");
  static_assert(
      calls_split<partitioner_type>,
      "recipe.partitioner needs split(std::span<range const> layers, int world, segment_list& segments) const");
  static_assert(calls_assign<partitioner_type>,
                "recipe.partitioner needs assign(std::span<segment> segments, std::span<double const> squared_norms, "
                "step_budget budget, partition_scratch& scratch) const");
  static_assert(residual_store<residual_type>,
                "recipe.residual needs states, above 0, a noexcept accumulate_element(gradient, state) and a noexcept "
                "remove_sent(sent, state, full_layer), where state is an element_state<states>&; on a device they are "
                "marked GRADSIEVE_HD");
  static_assert(codec<codec_type>, "recipe.codec needs max_bytes, encode and decode");
  static_assert(exchange_policy<exchange_type>,
                "recipe.exchange needs static constexpr exchange_traits traits{...}, what it does and needs; it must be "
                "comparable and trivially copyable");
  static_assert(!has_stray_trait<exchange_type>,
                "recipe.exchange has encodes, sums_values, single_owner, shared_choice, broadcast, all_to_all, "
                "send_receive or codes_full as a member of its own, which nothing reads: they are fields of its static "
                "constexpr exchange_traits traits");

  static_assert(capacity_fits<selector_type>,
                "recipe.selector's capacity must be index_type capacity(index_type k) const");
  static_assert(predict_fits<selector_type, view>,
                "recipe.selector's predict must be key_type predict(workspace, accumulator, index_type k) const");
  static_assert(predicts_warm_fits<selector_type>,
                "recipe.selector's predicts_warm must be bool predicts_warm() const noexcept");
  static_assert(choose_fits<selector_type>,
                "recipe.selector's choose and settle must be candidate_choice choose(accumulator, candidates, "
                "index_type k) const noexcept and threshold settle(accumulator, candidates, index_type k, threshold) "
                "const, not static and not templates");
  static_assert(search_fits<selector_type, view>,
                "recipe.selector's search must be threshold search(workspace, accumulator, index_type k) const, of a "
                "selector that has choose and settle");
  static_assert(score_fits<selector_type>,
                "recipe.selector's score must be float score(float accumulator, float gradient) const, of a selector "
                "that has bins");
  static_assert(sent_fits<selector_type>,
                "recipe.selector's sent must be float sent(float accumulator, float mean) const, of a selector that "
                "has bins");
  static_assert(bins_within_layers_fits<selector_type>,
                "recipe.selector's bins_within_layers must be a static constexpr bool, of a selector that has bins");
  static_assert(stored_fits<residual_type>,
                "recipe.residual's stored must be a type: float, gradsieve::float16 or gradsieve::bfloat16");
  static_assert(factor_fits<residual_type>,
                "recipe.residual's factor and needs_norm must be float factor(double norm, int world) const noexcept "
                "and bool needs_norm() const noexcept");
  static_assert(meaning_fits<residual_type>, "recipe.residual's meaning must be a static text");
  static_assert(quantise_fits<codec_type>,
                "recipe.codec's quantise must be quantise(info, indices, std::span<float>) const noexcept");
  static_assert(largest_fits<codec_type>, "recipe.codec's largest must be float largest() const");
  static_assert(most_entries_fits<codec_type>,
                "recipe.codec's most_entries must be std::uint64_t most_entries(std::span<std::byte const> front, "
                "std::uint64_t size) const");
  static_assert(
      account_fits<codec_type>,
      "recipe.codec's breakdown must be byte_breakdown breakdown(info, selection, std::span<range const> dense, "
      "std::span<std::byte const> message) const");
  static_assert(longest_bin_fits<codec_type>, "recipe.codec's longest_bin must be a static constexpr std::uint32_t");
  static_assert(same_on_all_ranks_fits<selector_type>,
                "recipe.selector's same_on_all_ranks must be a static constexpr bool");

  static_assert(!bin_selector<selector_type> || !partitioner_type::traits.needs_norms,
                "a selector that has bins chooses in the accumulate pass: it needs a partitioner without norms");
  static_assert(!layer_bin_selector<selector_type> || partitioner_type::traits.within_layers.value_or(true),
                "this selector's bins do not cross layers: it needs a partitioner whose segments lie within layers, "
                "such as layerwise");
  static_assert(!bin_codec<codec_type> || bin_selector<selector_type>,
                "this codec writes places in the selector's bins: it needs a selector that has bins, such as adacomp");
  static_assert(!exchange_type::traits.single_owner || partitioner_type::traits.single_owner.value_or(true),
                "this exchange is for one rank's choice: it needs a partitioner by which one rank selects in a step, "
                "such as cyclic");
  static_assert(!exchange_type::traits.shared_choice ||
                    (shared_selector<selector_type> && !partitioner_type::traits.disjoint),
                "this exchange sums what all ranks have chosen alike: it needs a selector that chooses by a seed, such "
                "as random_k, and a partitioner by which all ranks select from all segments, such as whole");

  static_assert(Space::template keeps<stored_t<residual_type>>, "on the host a residual is kept as float");
  static_assert(
      Space::template encodes_with<codec_type>,
      "this codec does not run on a device: messages have a fixed size there, so that binned saves nothing; use "
      "coo, or packed with elias_fano, fixed_width or raw32; for your own specialise device_codec, or device_indices "
      "or device_values for a part of packed. An exchange that sends no messages of the codec needs one all the same: "
      "coo");
  static_assert(Space::stream_ordered || Space::template exchanges_with<exchange_type, codec_type>,
                "recipe.exchange needs a class template buffers<Workspace> with reserve(work, codec, info, world, "
                "capacity, disjoint) and std::uint64_t most_sent() const");
  static_assert(!Space::stream_ordered || Space::template exchanges_with<exchange_type, codec_type>,
                "this exchange does not run on a device: specialise device_exchange, default-constructible, for it; "
                "reduce_scatter needs cuda/exchange/reduce_scatter.cuh");
};

template <class Recipe, class Space, class Comm>
struct exchange_rules {
  using codec_type = decltype(Recipe::codec);
  using exchange_type = decltype(Recipe::exchange);
  static constexpr bool sums = exchange_type::traits.sums_values;
  static constexpr bool on_host = !Space::stream_ordered;

  static_assert(!sums || separable_codec<codec_type>,
                "recipe.exchange sends indices and values apart: recipe.codec has to be coo, or packed with values "
                "that are coded one by one (fp32, fp16, bf16); see separable_codec");
  static_assert(!sums || Space::template sums_with<codec_type> || !separable_codec<codec_type>,
                "on a device index_union and leader send indices as u32 and values of 32 or 16 bits: recipe.codec has "
                "to be coo, or packed with raw32 and fp32, fp16 or bf16");
  static_assert(
      !on_host || (sums && !separable_codec<codec_type>) ||
          runs_with<exchange_type, typename Space::workspace, codec_type, Comm>,
      "recipe.exchange's buffers need exchange_result run(exchange_round<Comm, Workspace, Codec> const& round)");
  static_assert(on_host || stream_ordered_communicator<Comm>,
                "this communicator does not work in stream order: hand it over as staged{comm}");
  static_assert(has_all_gather<Comm, Space> && has_all_reduce<Comm, Space, float> &&
                    has_all_reduce<Comm, Space, double>,
                "this communicator needs all_gather and all_reduce for float and double");
  static_assert(on_host || has_all_reduce<Comm, Space, std::uint32_t>,
                "this communicator needs all_reduce for std::uint32_t");
  static_assert(!on_host || !exchange_type::traits.broadcast || has_broadcast<Comm, Space>,
                "this communicator needs broadcast, as the recipe's exchange sends from one rank to all");
  static_assert(!exchange_type::traits.all_to_all || has_all_to_all<Comm, Space>,
                "this communicator needs all_to_all, as the recipe's exchange sends each rank something else");
  static_assert(!on_host || !exchange_type::traits.send_receive || has_send_receive<Comm, Space>,
                "this communicator needs send_receive, as the recipe's exchange sends from rank to rank");
  static_assert(!on_host || !sums || !rounding_separable_codec<codec_type> || has_send_receive<Comm, Space>,
                "this communicator needs send_receive, as the recipe's values are summed in a format of their own");
  static_assert(on_host || !sums || !rounding_separable_codec<codec_type> || has_all_to_all<Comm, Space>,
                "this communicator needs all_to_all, as on a device the recipe's values are summed in shares");
  static_assert(stages_fits<Comm>, "this communicator's stages must be a static constexpr bool");
  static_assert(stream_ordered_fits<Comm>, "this communicator's stream_ordered must be a static constexpr bool");
  static_assert(require_threads_fits<Comm>, "this communicator's require_threads must be void require_threads() const");
};

}  // namespace detail

/// True for a recipe that works in a space; another does not compile, with a sentence that names the broken rule.
template <class Recipe, class Space>
inline constexpr bool compatible = sizeof(detail::recipe_rules<Recipe, Space>) > 0;

/// As compatible, for exchange() with a communicator; compress() does not need it.
template <class Recipe, class Space, class Comm>
inline constexpr bool exchangeable = sizeof(detail::exchange_rules<Recipe, Space, Comm>) > 0;

}  // namespace gradsieve
