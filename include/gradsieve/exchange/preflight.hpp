// The handshake: an all-gather in which ranks compare layout, recipe and step before they send anything.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// One all-gather of 32 bytes per rank, the first collective of every exchange: a new, restored or failed rank takes
/// part like all others, and then all ranks continue or all throw. A rank calls meet_early(), before anything changes,
/// if it was not compared with this world yet or its recipe needs counts of the other ranks; otherwise meet(), with its
/// message size. If any rank was early, a handshake with the sizes follows. Memory: above 32 ranks 32 bytes per rank.
class preflight {
 public:
  /// This rank's compressor, without its step. `arithmetic` is equal on ranks that round in the same way.
  preflight() = default;
  preflight(layout const& layers, std::uint64_t recipe, std::uint8_t arithmetic) noexcept
      : layout_and_recipe_{fold(layers.identity() ^ layers.size()) | fold(recipe) << 32}, arithmetic_{arithmetic} {}

  /// The origin of this rank's step, for error messages.
  enum class origin : std::uint8_t { continued, made, restored };

  /// Sent besides a rank's identity.
  struct word {
    std::uint64_t step = 0;
    origin from = origin::continued;
  };

  /// Sets the format of the gradients that are exchanged next; void: any.
  template <class T>
  void set_format() noexcept {
    format_ = std::same_as<T, float> ? 1 : std::same_as<T, float16> ? 2 : std::same_as<T, bfloat16> ? 3 : 0;
  }

  /// Allocates beyond 32 ranks. @throws std::bad_alloc; up to 2048 ranks the next handshake can still report that as
  /// this rank's failure; with more, the other ranks wait.
  void reserve(int world) {
    if (static_cast<std::size_t>(world) > few_.size()) many_.resize(static_cast<std::size_t>(world));
  }

  /// A handshake before anything changes. Afterwards total() is the sum of all ranks' `count`, if all ranks were early.
  /// Collective. @pre reserve() @throws this rank's `failure`; on every rank communication_error if another rank
  /// failed, or mismatch, naming the rank, if ranks differ in layout, recipe, gradient format or step.
  template <class Comm, class Space>
  void meet_early(Comm const& comm, Space const& where, word const& mine, std::uint64_t count,
                  std::exception_ptr const& failure) {
    gather(comm, where, pack(mine, true, count, 0, failure != nullptr), failure);
  }

  /// A number for meet(), equal on ranks that divide the work alike and skip the same layers.
  [[nodiscard]] static constexpr std::uint64_t decision(std::uint64_t divides, std::uint64_t skips) noexcept {
    return fold(divides) | fold(skips) << 32;
  }

  /// A handshake with this rank's message size and a `decision`. Afterwards size(rank) is known for every rank.
  /// Collective. @pre reserve() @throws as meet_early(); mismatch if decisions differ or a size exceeds `most`.
  template <class Comm, class Space>
  void meet(Comm const& comm, Space const& where, word const& mine, std::uint64_t size, std::uint64_t most,
            std::uint64_t decision, std::exception_ptr const& failure) {
    auto const own = pack(mine, false, size, decision, failure != nullptr);
    do gather(comm, where, own, failure);
    while (std::ranges::any_of(all_, &packed_word::early));
    for (std::size_t r = 1; r < all_.size(); ++r) {
      if (all_[r].decision == all_[0].decision) continue;
      bool const skips = (all_[r].decision ^ all_[0].decision) >> 32 != 0;
      throw mismatch("gradsieve: rank " + std::to_string(r) + " and rank 0 differ in " +
                     (skips ? "the layers that they skip"
                            : "which rank selects where: they were built otherwise, or the communicator's all_reduce "
                              "gave them different norms"));
    }
    for (std::size_t r = 0; r < all_.size(); ++r)
      if (all_[r].size > most)
        throw mismatch("gradsieve: rank " + std::to_string(r) + " announces a size of " + std::to_string(all_[r].size) +
                       ", there is room for " + std::to_string(most));
  }

  /// A handshake of weights, see mean_factor(). Afterwards weight(rank) is known for every rank. If some ranks begin an
  /// exchange instead, all throw. Collective. @throws communication_error if another rank failed; mismatch on every
  /// rank; std::bad_alloc as reserve().
  template <class Comm, class Space>
  void meet_weights(Comm const& comm, Space const& where, double weight) {
    format_ = weights;
    std::exception_ptr failure;
    try {
      reserve(comm.size());
    } catch (...) {
      failure = std::current_exception();
    }
    gather(comm, where, pack({}, false, stored_bits(weight), 0, failure != nullptr), failure);
  }

  [[nodiscard]] std::uint64_t size(std::size_t rank) const noexcept { return all_[rank].size; }
  [[nodiscard]] double weight(std::size_t rank) const noexcept { return bit_cast<double>(all_[rank].size); }
  [[nodiscard]] std::uint64_t total() const noexcept {
    std::uint64_t sum = 0;
    for (auto const& each : all_) sum += each.size;
    return sum;
  }

  /// Bytes that this rank sent in handshakes since forget_bytes().
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }
  void forget_bytes() noexcept { sent_ = received_ = 0; }

  /// A word in the format of the wire.
  struct packed_word {
    std::uint64_t layout_and_recipe = 0;  // 32 bits each
    std::uint64_t step_and_flags = 0;  // bits: step 40; arithmetic, wire version 8; origin, format 3; early, failed 1
    std::uint64_t size = 0;
    std::uint64_t decision = 0;

    [[nodiscard]] bool failed() const noexcept { return step_and_flags >> 63 != 0; }
    [[nodiscard]] bool early() const noexcept { return (step_and_flags >> 62 & 1u) != 0; }
    [[nodiscard]] std::uint64_t step() const noexcept { return step_and_flags & step_mask; }
    [[nodiscard]] unsigned arithmetic() const noexcept { return static_cast<unsigned>(step_and_flags >> 40 & 0xFFu); }
    [[nodiscard]] unsigned version() const noexcept { return static_cast<unsigned>(step_and_flags >> 48 & 0xFFu); }
    [[nodiscard]] std::size_t format() const noexcept { return step_and_flags >> 59 & 0x7u; }
    [[nodiscard]] std::string step_text() const {
      constexpr std::array origins{"", ", made anew", ", restored from a checkpoint"};
      std::size_t const from = step_and_flags >> 56 & 0x7u;
      return std::to_string(step()) + (from < origins.size() ? origins[from] : "");
    }
  };

  /// This rank's word. @pre step < 2^40
  [[nodiscard]] packed_word pack(word const& mine, bool early, std::uint64_t size, std::uint64_t decision,
                                 bool failed) const noexcept {
    return {layout_and_recipe_,
            (mine.step & step_mask) | std::uint64_t{arithmetic_} << 40 | std::uint64_t{message_version & 0xFFu} << 48 |
                std::uint64_t{static_cast<std::uint8_t>(mine.from)} << 56 | std::uint64_t{format_} << 59 |
                std::uint64_t{early ? 1u : 0u} << 62 | std::uint64_t{failed ? 1u : 0u} << 63,
            failed ? 0 : size, decision};
  }

  /// Compares the words of all ranks. @throws communication_error, mismatch
  static void check_all(std::span<packed_word const> all) {
    for (std::size_t r = 0; r < all.size(); ++r)
      if (all[r].failed())
        throw communication_error("gradsieve: rank " + std::to_string(r) + " failed in this step; nothing was sent");
    for (std::size_t r = 1; r < all.size(); ++r) compare(r, all[r], all[0]);
  }

 private:
  static constexpr std::uint8_t weights = 7;  // the format of words that hold no gradient's size
  static constexpr std::uint64_t step_mask = (std::uint64_t{1} << 40) - 1;

  [[nodiscard]] static constexpr std::uint64_t fold(std::uint64_t hash) noexcept {
    return (hash ^ hash >> 32) & 0xFFFF'FFFFu;
  }

  template <class Comm, class Space>
  void gather(Comm const& comm, Space const& where, packed_word const& own, std::exception_ptr const& failure) {
    auto const world = static_cast<std::size_t>(comm.size());
    if (failure && world > few_.size() && world > many_.size()) return report_failure(comm, where, own, failure);
    all_ = world > few_.size() ? std::span{many_}.first(world) : std::span{few_}.first(world);
    comm.all_gather(where, std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(all_));
    sent_ += sizeof own;
    received_ += sizeof own * (world - 1);
    if (failure) std::rethrow_exception(failure);
    check_all(all_);
  }

  /// Takes part in the all-gather with a buffer on the stack, and throws the failure.
  template <class Comm, class Space>
  static void report_failure(Comm const& comm, Space const& where, packed_word const& own,
                             std::exception_ptr const& failure) {
    std::array<packed_word, 2048> buffer;
    auto const world = static_cast<std::size_t>(comm.size());
    if (world <= buffer.size())
      comm.all_gather(where, std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span{buffer}.first(world)));
    std::rethrow_exception(failure);
  }

  static void compare(std::size_t r, packed_word const& it, packed_word const& zero) {
    auto const refuse = [&](std::string const& what) {
      throw mismatch("gradsieve: rank " + std::to_string(r) + " and rank 0 differ in " + what);
    };
    if (it.version() != zero.version()) refuse("wire version");
    if ((it.format() == weights) != (zero.format() == weights))
      refuse("whether they give a weight: call mean_factor() before the exchange on all ranks, or on none");
    if (((it.layout_and_recipe ^ zero.layout_and_recipe) & 0xFFFF'FFFFu) != 0) refuse("layout");
    if (it.layout_and_recipe != zero.layout_and_recipe) refuse("recipe or density");
    if (it.arithmetic() != zero.arithmetic())
      refuse("arithmetic: they were built otherwise, or their processors round differently");
    if (it.format() != zero.format() && it.format() != 0 && zero.format() != 0)
      refuse("the format of their gradients: float, float16 or bfloat16");
    if (it.step() != zero.step()) refuse("step: " + it.step_text() + "; and " + zero.step_text());
  }

  std::uint64_t layout_and_recipe_ = 0;
  std::uint8_t arithmetic_ = 0;
  std::uint8_t format_ = 0;  // of the gradients that are exchanged
  std::array<packed_word, 32> few_{};
  std::vector<packed_word> many_;
  std::span<packed_word> all_;  // of the last handshake: a part of few_ or many_
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace gradsieve::detail
