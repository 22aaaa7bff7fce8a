// Averages encoded messages: the receiving side for a transport of your own.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/codec/coo.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/arguments.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/exchange/decoded_messages.hpp>
#include <gradsieve/host/passthrough.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/partitioner/segmentation.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Averages messages of compressors with the same layout, codec and passthrough layers; their other policies may
/// differ. averager{where, layers, recipe} reads what compressor{where, layers, recipe} encodes. It has no residual;
/// its memory is for the entries of the messages, see apply(). Not for concurrent use. After a move, all members of the
/// moved-from object throw invalid_argument until another averager is moved into it.
/// @include own_transport.cpp
template <space Space, class Codec = coo>
class averager {
 public:
  using workspace = typename Space::workspace;  ///< its scratch
  using codec_type = Codec;                     ///< reads the messages
  static_assert(gradsieve::codec<codec_type>, "an averager's codec needs max_bytes, encode and decode");

  /// For a codec that needs no bins, and the layers that pass through. @throws invalid_argument as the codec's check().
  averager(Space where, layout layers, Codec codec = {}, passthrough_layers passthrough = {})
      : averager{where, std::move(layers), codec, passthrough, no_bins{}} {
    static_assert(!bin_codec<Codec>, "this codec writes places in a selector's bins: make the averager of the recipe");
  }

  /// For a recipe: its codec, passthrough layers, and the bins of its selector. @throws invalid_argument as above.
  template <class Recipe>
    requires std::same_as<decltype(Recipe::codec), Codec>
  averager(Space where, layout layers, Recipe const& recipe)
      : averager{where, std::move(layers), recipe.codec, recipe.passthrough, recipe.selector} {}

  /// Overwrites the gradient (a vector, array or span of float, float16 or bfloat16, or `pieces` of it) with the mean
  /// of the messages, summed in their order; elements without an entry become zero. All messages are checked before it
  /// is written, and must not change during the call. Returns `entries`, the number of elements with an entry, without
  /// those that pass through, and `saturated`, the number clamped to the largest value of the gradient's format. Cost:
  /// n writes and O(entries). Allocates only if it needs more memory than in any earlier call. Memory: 12 bytes for
  /// each entry that the messages' headers and sizes allow, and 4 for each passthrough element of each message; kept
  /// for the next call. @throws corrupt_message; invalid_argument if the gradient's size is not the layout's;
  /// std::bad_alloc, after which the next call works.
  template <class Gradient>
  applied_update apply(std::span<std::span<std::byte const> const> messages, Gradient&& gradient) {
    alive();
    float_environment const mode;
    auto const out = detail::writable<Gradient>(detail::checked_gradient(gradient, layers_));
    out.check(layers_);
    std::uint64_t entries = 0;
    for (auto const& each : messages) {
      wire::expect(each.size() >= 4 * info_.passthrough, "size", each.size(), "at least ", 4 * info_.passthrough);
      entries += detail::most_entries(codec_, info_, each, each.size());
    }
    decoded_.reserve(messages.size(), entries, info_.passthrough * messages.size());
    work_.reserve_updates(messages.size());
    if (passthrough_mean_.size() < info_.passthrough)
      passthrough_mean_ = typename workspace::template buffer<float>(info_.passthrough);
    bool apart = true;  // no message lies where the mean is written
    out.for_each_run(0, out.size(), [&](auto const run) {
      for (auto const& each : messages) apart = apart && !detail::shares_memory(each, std::as_bytes(run));
    });
    auto const most = [&](std::size_t m) {
      return detail::most_entries(codec_, info_, messages[m], messages[m].size());
    };
    decoded_.add_all(work_, codec_, info(), messages, most, apart);
    auto const divisor = static_cast<float>(std::max<std::size_t>(messages.size(), 1));
    auto applied = work_.apply(decoded_.messages(), divisor, out);
    for (std::size_t i = 0; i < info_.passthrough; ++i) passthrough_mean_[i] = mean_of_passthrough(i, divisor);
    applied.saturated +=
        detail::write_ranges(std::span<range const>{split_.passthrough},
                             std::span<float const>{passthrough_mean_.first(info_.passthrough)}, 1.0f, out);
    return applied;
  }

  [[nodiscard]] layout const& layers() const { return alive().layers_; }  ///< as at construction
  [[nodiscard]] Codec const& codec() const { return alive().codec_; }     ///< as at construction

 private:
  struct no_bins {};

  template <class Selector>
  averager(Space where, layout layers, Codec codec, passthrough_layers const& passthrough, Selector const& selector)
      : layers_{std::move(layers)},
        codec_{codec},
        split_{layers_, passthrough},
        layer_bins_{detail::layer_bins_of(selector, codec, layers_)},
        info_{layers_.size(), layers_.hash(), split_.passthrough_elements},
        work_{where, layers_.size()} {
    check(codec_);
  }

  averager const& alive() const {
    if (!here_) throw invalid_argument("gradsieve: this averager was moved from");
    return *this;
  }

  [[nodiscard]] GRADSIEVE_PRECISE float mean_of_passthrough(std::size_t i, float divisor) const noexcept {
    auto const all = decoded_.messages();
    float sum = all.empty() ? 0.0f : all[0].passthrough[i];
    for (std::size_t m = 1; m < all.size(); ++m) sum = add(sum, all[m].passthrough[i]);
    if (is_finite(sum)) return divide(sum, divisor);
    double wide = 0;  // a sum that overflows
    for (auto const& each : all) wide = exact::add(wide, static_cast<double>(each.passthrough[i]));
    return static_cast<float>(exact::divide(wide, static_cast<double>(divisor)));
  }

  /// Recreated in each call, as a move of the averager moves its layout.
  [[nodiscard]] message_info info() const noexcept {
    auto about = info_;
    about.layers = &layers_;
    about.bins = layer_bins_;
    return about;
  }

  detail::presence here_;
  layout layers_;
  Codec codec_;
  detail::layer_split split_;
  std::vector<std::uint32_t> layer_bins_;
  message_info info_;
  workspace work_;
  decoded_messages<workspace> decoded_;
  typename workspace::template buffer<float> passthrough_mean_;
};

/// The averager of a recipe's messages.
template <class Space, class Recipe>
  requires requires(Recipe const& of) { of.codec; }
averager(Space, layout, Recipe) -> averager<Space, decltype(Recipe::codec)>;

}  // namespace gradsieve
