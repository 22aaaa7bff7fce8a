// The k-th largest of all ranks' keys.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Finds exactly which keys are among the k largest of all ranks, where each rank knows its own. In a round every rank
/// sends how many of its keys lie above a bracket and within it, and 29 of those inside, evenly spaced by rank; all
/// ranks then narrow the bracket alike. Of equal keys those of the lower ranks are kept. The method is this library's.
/// Cost: 128 bytes per rank and round. A round leaves at most 4 / 28 of the keys within the bracket; three to six
/// rounds are usual. Memory: about 400 bytes per rank.
class global_threshold {
 public:
  /// Allocates.
  void reserve(int world) {
    auto const ranks = static_cast<std::size_t>(world);
    all_.resize(ranks);
    candidates_.reserve(2 * samples * ranks);
  }

  /// `sorted`: this rank's keys, of finite values, the largest first. Afterwards keys of key() are known, see kept()
  /// and ties(). A rank's `failure` makes all ranks throw. Collective.
  /// @throws the failure; communication_error if another rank failed; corrupt_message for words that no rank writes, or
  /// that do not go together.
  template <class Comm, class Space>
  void find(Comm const& comm, Space const& where, std::span<key_type const> sorted, std::uint64_t k,
            std::exception_ptr const& failure = {}) {
    low_ = 0;
    high_ = infinite_key;
    rounds_ = 0;
    for (;;) {
      word mine = describe(sorted);
      if (failure) mine.at_least_low = failed;
      comm.all_gather(where, std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{all_}));
      ++rounds_;
      if (failure) std::rethrow_exception(failure);
      check();
      auto const total = [&](std::uint32_t word::* count) {
        std::uint64_t sum = 0;
        for (auto const& each : all_) sum += each.*count;
        return sum;
      };
      std::uint64_t const above = total(&word::above_low);
      if (total(&word::at_least_low) <= k) return share(~std::uint64_t{0});
      if (k == 0) return take_none();
      if (above < k) return share(k - above);
      if (total(&word::at_least_high) >= k)  // no bracket then, and no search that ends: a word was damaged
        throw corrupt_message("gradsieve: the ranks' keys belong to different searches");
      narrow(k);
    }
  }

  /// Larger keys are kept, and of equal ones the first ties(rank) of a rank.
  [[nodiscard]] key_type key() const noexcept { return low_; }
  [[nodiscard]] std::uint64_t ties(std::size_t rank) const noexcept { return all_[rank].at_least_high; }
  /// Entries that a rank keeps.
  [[nodiscard]] std::uint64_t kept(std::size_t rank) const noexcept { return all_[rank].above_low + ties(rank); }

  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return sizeof(word) * rounds_; }
  [[nodiscard]] std::uint64_t bytes_received() const noexcept { return bytes_sent() * (all_.size() - 1); }

 private:
  static constexpr std::size_t samples = 29;
  static constexpr std::uint32_t failed = ~std::uint32_t{0};

  /// Of one rank: how many keys it has from the bracket's lower end on, above that, and from the upper end on; and some
  /// of those between both ends.
  struct word {
    std::uint32_t at_least_low = 0;
    std::uint32_t above_low = 0;
    std::uint32_t at_least_high = 0;  // at the end: how many of those equal to the threshold are kept
    std::array<key_type, samples> keys{};

    [[nodiscard]] std::uint64_t inside() const noexcept { return above_low - at_least_high; }
    [[nodiscard]] std::size_t shown() const noexcept { return smaller<std::uint64_t>(samples, inside()); }
  };
  static_assert(sizeof(word) == 128);

  /// Which of the keys within the bracket is the i-th that is sent: the first, the last, and others between.
  [[nodiscard]] static std::uint64_t place(std::uint64_t i, std::uint64_t inside) noexcept {
    return inside <= samples ? i : i * (inside - 1) / (samples - 1);
  }

  [[nodiscard]] word describe(std::span<key_type const> sorted) const noexcept {
    auto const at_least = [&](key_type key) {  // how many are not smaller
      return static_cast<std::uint32_t>(
          std::partition_point(sorted.begin(), sorted.end(), [&](key_type x) { return x >= key; }) - sorted.begin());
    };
    word mine{at_least(low_), at_least(low_ + 1), at_least(high_), {}};
    for (std::size_t i = 0; i < mine.shown(); ++i) mine.keys[i] = sorted[mine.at_least_high + place(i, mine.inside())];
    return mine;
  }

  void check() const {
    for (std::size_t r = 0; r < all_.size(); ++r) {
      auto const& each = all_[r];
      if (each.at_least_low == failed)
        throw communication_error("gradsieve: rank " + std::to_string(r) + " failed in this step; nothing was sent");
      bool good = each.above_low <= each.at_least_low && each.at_least_high <= each.above_low;
      if (good)
        for (std::size_t i = 0; i < each.shown(); ++i)
          good = good && each.keys[i] > low_ && each.keys[i] < high_ && (i == 0 || each.keys[i - 1] >= each.keys[i]);
      if (!good)
        throw corrupt_message("gradsieve: rank " + std::to_string(r) + "'s keys are not in order, or out of range");
    }
  }

  /// Bounds of how many keys are not smaller than `key`, of all ranks.
  struct bounds {
    std::uint64_t least = 0;
    std::uint64_t most = 0;
  };
  [[nodiscard]] bounds at_least(key_type key) const noexcept {
    bounds sum;
    for (auto const& each : all_) {
      auto const end = each.keys.begin() + static_cast<std::ptrdiff_t>(each.shown());
      auto const reach = static_cast<std::size_t>(
          std::partition_point(each.keys.begin(), end, [&](key_type x) { return x >= key; }) - each.keys.begin());
      sum.least += each.at_least_high + (reach == 0 ? 0 : place(reach - 1, each.inside()) + 1);
      sum.most += each.at_least_high + (reach == each.shown() ? each.inside() : place(reach, each.inside()));
    }
    return sum;
  }

  /// Invariant: fewer than k keys are >= high_, and at least k are >= low_. Each call moves one of both, as the
  /// smallest key that is sent is the smallest one inside.
  void narrow(std::uint64_t k) {
    candidates_.clear();
    for (auto const& each : all_)
      for (std::size_t i = 0; i < each.shown(); ++i) {
        candidates_.push_back(each.keys[i]);
        candidates_.push_back(each.keys[i] + 1);
      }
    std::ranges::sort(candidates_);
    auto const enough = std::partition_point(candidates_.begin(), candidates_.end(),
                                             [&](key_type key) { return at_least(key).least >= k; });
    auto const too_many = std::partition_point(candidates_.begin(), candidates_.end(),
                                               [&](key_type key) { return at_least(key).most >= k; });
    if (enough != candidates_.begin()) low_ = *(enough - 1);
    if (too_many != candidates_.end()) high_ = *too_many;
  }

  /// Of the keys equal to the threshold `left` are kept, the lowest ranks' first.
  void share(std::uint64_t left) noexcept {
    for (auto& each : all_) {
      auto const equal = smaller<std::uint64_t>(each.at_least_low - each.above_low, left);
      each.at_least_high = static_cast<std::uint32_t>(equal);
      left -= equal;
    }
  }

  void take_none() noexcept {
    low_ = infinite_key;
    for (auto& each : all_) each = {};
  }

  key_type low_ = 0;
  key_type high_ = infinite_key;
  std::uint64_t rounds_ = 0;
  std::vector<word> all_;
  std::vector<key_type> candidates_;
};

}  // namespace gradsieve::detail
