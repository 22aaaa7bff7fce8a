// The dense sums within a node on the host, around a rank's exchange of its part.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/config.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/node_share.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/team.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Host memory of two_level_compressor. Ranks report failures to each other before the node's sum and after the
/// exchange: if one fails, all ranks of the node throw.
class host_node_exchange {
 public:
  using arithmetic = float_environment;
  static constexpr bool holds_failures = true;  ///< a failed rank takes part, and throws at the end

  host_node_exchange(host where, node_share const& part) : where_{where}, team_{where.threads}, part_{part} {}

  template <class Gradient>
  [[nodiscard]] static auto gradient_of(Gradient& gradient, layout const& layers) noexcept {
    return checked_gradient(gradient, layers);
  }

  /// Checks the gradient; the first call allocates for its format. @throws invalid_argument
  template <bool Scatters, class T>
  void reserve(gradient_ref<T> const gradient, layout const& layers) {
    gradient.check(layers);
    if (!sums_are_there_) sums_ = host_buffer<float>(part_.capacity());
    sums_are_there_ = true;
    if constexpr (!std::same_as<T, float>)
      if (halves_.size() < part_.capacity() * sizeof(T)) halves_ = host_buffer<std::byte>(part_.capacity() * sizeof(T));
    if (!(is_even(gradient) && Scatters && std::same_as<T, float>) && all_.size() < part_.total_capacity())
      all_ = host_buffer<float>(part_.total_capacity());
  }

  /// Compares layout, recipe and skipped layers of the node's ranks, and exchanges failures. Sets `failure`, unless
  /// this rank has failed itself, to another rank's failure or to a mismatch. Collective.
  template <class Inside>
  void meet(Inside const& inside, std::uint64_t layers, std::uint64_t recipe, std::uint64_t skips,
            held_failure& failure) {
    constexpr std::uint32_t mask = 0x7FFF'FFFFu;  // for transports whose integers are signed
    auto const fold = [](std::uint64_t hash) { return static_cast<std::uint32_t>(hash ^ hash >> 32) & mask; };
    std::array<std::uint32_t, 7> words{failure ? 1 + static_cast<std::uint32_t>(inside.rank()) : 0,
                                       fold(layers),
                                       ~fold(layers) & mask,
                                       fold(recipe),
                                       ~fold(recipe) & mask,
                                       fold(skips),
                                       ~fold(skips) & mask};
    held_failure reported;
    reported.attempt([&] {
      inside.all_reduce(where_, std::span<std::uint32_t>{words}, reduction::max);
      if (words[0] != 0)
        throw communication_error("gradsieve: rank " + std::to_string(words[0] - 1) +
                                  " of this node failed in this step; nothing was given up");
      if (words[1] != (~words[2] & mask)) throw mismatch("gradsieve: ranks of one node differ in layout or format");
      if (words[3] != (~words[4] & mask)) throw mismatch("gradsieve: ranks of one node differ in recipe or density");
      if (words[5] != (~words[6] & mask))
        throw mismatch("gradsieve: ranks of one node differ in the layers that they skip");
    });
    if (!failure) failure = reported;
  }

  /// Sets values() to this rank's part of the mean of the node's gradients. Collective.
  template <class Inside, class T>
  void average(Inside const& inside, gradient_ref<T> const gradient) {
    constexpr bool scatters = has_reduce_scatter<Inside, host, float>;
    auto const sums = sums_.first(part_.capacity());
    if constexpr (scatters && std::same_as<T, float>) {
      if (is_even(gradient)) {
        inside.reduce_scatter(where_, std::span<float const>{gradient.flat()}, sums, reduction::sum);
        return divide_sums(sums, values<T>());
      }
    }
    auto const all = all_.first(part_.total_capacity());
    each(gradient.size(), [&](std::size_t begin, std::size_t end) {
      gradient.for_each_run(begin, end - begin, [&](std::span<T> const run) {
        std::ranges::transform(run, all.begin() + static_cast<std::ptrdiff_t>(begin), [](T x) { return to_float(x); });
        begin += run.size();
      });
    });
    std::ranges::fill(all.subspan(gradient.size()), 0.0f);
    if constexpr (scatters) {
      inside.reduce_scatter(where_, std::span<float const>{all}, sums, reduction::sum);
    } else {
      inside.all_reduce(where_, all, reduction::sum);
      std::ranges::copy(all.subspan(part_.capacity() * static_cast<std::size_t>(part_.rank), part_.capacity()),
                        sums.begin());
    }
    divide_sums(sums, values<T>());
  }

  /// This rank's part, without the padding behind the gradient's end.
  template <class T>
  [[nodiscard]] std::span<T> values() const noexcept {
    return own_part<T>().first(own_part<T>().empty() ? 0 : part_.size());
  }

  /// Exchanges failures and collects all ranks' parts, or discards the step if a rank failed. Collective. @throws the
  /// failure
  template <class Inside, class Compressor, class T>
  void collect(Inside const& inside, gradient_ref<T> const gradient, held_failure& failure, Compressor& compressor) {
    bool const given = !failure;
    meet(inside, 0, 0, 0, failure);
    if (failure) {
      if (given) compressor.discard_step();
      std::rethrow_exception(failure.why());
    }
    auto const mine = std::as_bytes(own_part<T>());
    if (is_even(gradient)) return inside.all_gather(where_, mine, std::as_writable_bytes(gradient.flat()));
    auto const all = std::as_writable_bytes(all_.span()).first(part_.total_capacity() * sizeof(T));
    inside.all_gather(where_, mine, all);
    each(gradient.size(), [&](std::size_t begin, std::size_t end) {
      gradient.write(begin, end - begin, reinterpret_cast<T const*>(all.data()) + begin);
    });
  }

  [[nodiscard]] step_report const& report(step_report const& of_part) const noexcept { return of_part; }

 private:
  /// True if the ranks' parts fill the gradient exactly and it is contiguous.
  template <class T>
  [[nodiscard]] bool is_even(gradient_ref<T> const gradient) const noexcept {
    return part_.n == part_.total_capacity() && gradient.in_one_piece();
  }

  template <class T>
  [[nodiscard]] std::span<T> own_part() const noexcept {
    if constexpr (std::same_as<T, float>)
      return sums_.span();
    else
      return {reinterpret_cast<T*>(halves_.data()), halves_.size() / sizeof(T)};
  }

  /// Calls body(begin, end) for parts of `count` items, on the whole team.
  template <class Body>
  void each(std::size_t count, Body const& body) const {
    team_.run(count, [&](int worker) {
      auto const mine = team_.part(count, worker);
      body(static_cast<std::size_t>(mine.first), static_cast<std::size_t>(mine.second));
    });
  }

  template <class T>
  void divide_sums(std::span<float> sums, std::span<T> means) const {
    auto const ranks = static_cast<float>(part_.ranks);
    each(means.size(), [&](std::size_t begin, std::size_t end) { mean<T>(sums, means, ranks, begin, end); });
    std::fill(own_part<T>().begin() + static_cast<std::ptrdiff_t>(means.size()), own_part<T>().end(), T{});
  }

  template <class T>
  GRADSIEVE_PRECISE static void mean(std::span<float const> sums, std::span<T> means, float ranks, std::size_t begin,
                                     std::size_t end) noexcept {
    for (std::size_t i = begin; i < end; ++i) means[i] = from_float<T>(divide(sums[i], ranks));
  }

  host where_;
  host_team team_;
  node_share part_;
  host_buffer<float> sums_;        // sums of this rank's part; for binary32 gradients also its values
  host_buffer<std::byte> halves_;  // this rank's values in 16-bit formats
  host_buffer<float> all_;         // all ranks' parts, unless the gradient itself can hold them
  bool sums_are_there_ = false;
};

}  // namespace gradsieve::detail
