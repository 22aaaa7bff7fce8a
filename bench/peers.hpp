// Other ways to choose the k largest of an accumulator: own plain code, on the same team as the library.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/workspace.hpp>

namespace bench {

namespace gs = gradsieve;

/// Calls found(i) for every element whose key passes; most groups have none, and a vector comparison tells.
struct filter_loop {
  template <gs::simd, class Test, class Found>
  GRADSIEVE_INLINE static void run(std::span<float const> values, Test const test, Found const found) noexcept {
    constexpr std::size_t group = 32;  // with 16, g++ unrolls instead of vectorising
    for (std::size_t begin = 0; begin < values.size(); begin += group) {
      std::size_t const end = std::min(begin + group, values.size());
      std::uint32_t any = end < begin + group ? 1 : 0;
      if (any == 0)
        for (std::size_t i = 0; i < group; ++i) any |= test(gs::magnitude_key(values[begin + i])) ? 1u : 0u;
      if (any == 0) continue;
      for (std::size_t i = begin; i < end; ++i)
        if (test(gs::magnitude_key(values[i]))) found(i);
    }
  }
};

template <class Test, class Found>
void filter(std::span<float const> values, Test const& test, Found const& found) noexcept {
  gs::host_kernels::run<filter_loop>(gs::host_kernels::best_simd(), values, test, found);
}

/// Every peer is made for (n, k, threads), and its call writes at most k entries and returns how many.
class peer {
 public:
  peer(std::uint64_t n, gs::index_type k, int threads)
      : n_{n}, k_{k}, team_{threads}, workers_(static_cast<std::size_t>(team_.size())) {}

 protected:
  struct alignas(64) worker_state {
    std::uint64_t above = 0;  // of the threshold's key; then: where to write the next
    std::uint64_t equal = 0;  // to it; then: how many of them to take
    std::uint64_t kept = 0;   // keys that are written down
    std::vector<std::uint32_t> counts;
    std::vector<gs::index_type> indices;
    std::vector<float> values;
  };

  /// Calls body(worker's state, begin, end) for the parts of `count` items.
  template <class Body>
  void parts(std::uint64_t count, Body const& body) {
    team_.run(count, [&](int worker) {
      auto const [begin, end] = team_.part(count, worker);
      body(workers_[static_cast<std::size_t>(worker)], begin, end);
    });
  }

  static void count(worker_state& mine, std::span<float const> values, gs::key_type key) {
    std::uint32_t above = 0;
    std::uint32_t equal = 0;
    for (float const value : values) {
      above += gs::magnitude_key(value) > key ? 1u : 0u;
      equal += gs::magnitude_key(value) == key ? 1u : 0u;
    }
    mine.above = above;
    mine.equal = equal;
  }

  /// Counts become places: k entries in all, ties in order of the workers. Returns how many there are.
  gs::index_type place() {
    std::uint64_t ties = k_;
    for (auto const& each : workers_) ties -= std::min(ties, each.above);
    std::uint64_t written = 0;
    for (auto& each : workers_) {
      auto const above = each.above;
      each.above = written;
      each.equal = std::min(each.equal, ties);
      ties -= each.equal;
      written += above + each.equal;
    }
    return static_cast<gs::index_type>(written);
  }

  /// Writes those above the key and the first ties, from a worker's place on.
  template <class Index>
  static void write(worker_state& mine, std::span<float const> values, gs::key_type key, gs::selection_span out,
                    Index const& index) {
    auto at = mine.above;
    auto ties = mine.equal;
    filter(
        values, [=](gs::key_type here) { return here >= key; },
        [&](std::size_t i) {
          if (gs::magnitude_key(values[i]) == key) {
            if (ties == 0) return;
            --ties;
          }
          out.indices[at] = index(i);
          out.values[at++] = values[i];
        });
  }

  /// What a threshold keeps of the accumulator, from counts that are there.
  gs::index_type compact(std::span<float const> acc, gs::key_type key, gs::selection_span out) {
    auto const written = place();
    parts(n_, [&](worker_state& mine, std::uint64_t begin, std::uint64_t end) {
      write(mine, acc.subspan(begin, end - begin), key, out,
            [&](std::size_t i) { return static_cast<gs::index_type>(begin + i); });
    });
    return written;
  }

  std::uint64_t n_;
  gs::index_type k_;
  gs::detail::host_team team_;
  std::vector<worker_state> workers_;
};

struct nth_element {
  static void run(std::span<gs::key_type> keys, std::ptrdiff_t k) {
    std::nth_element(keys.begin(), keys.begin() + k - 1, keys.end(), std::greater<>{});
  }
};

struct partial_sort {
  static void run(std::span<gs::key_type> keys, std::ptrdiff_t k) {
    std::partial_sort(keys.begin(), keys.begin() + k, keys.end(), std::greater<>{});
  }
};

/// Vectorised ones of other libraries, where they were found.
struct simd_sort {
  static void run(std::span<gs::key_type> keys, std::ptrdiff_t k);
};
struct highway {
  static void run(std::span<gs::key_type> keys, std::ptrdiff_t k);
};

/// A copy of all keys, a standard algorithm that brings the k-th to its place (on one thread, as it is), and two
/// passes that collect.
template <class Algorithm>
class by_standard_algorithm : peer {
 public:
  by_standard_algorithm(std::uint64_t n, gs::index_type k, int threads) : peer{n, k, threads}, keys_(n) {}

  gs::index_type operator()(std::span<float const> acc, gs::selection_span out) {
    parts(n_, [&](worker_state&, std::uint64_t begin, std::uint64_t end) {
      for (auto i = begin; i < end; ++i) keys_[i] = gs::magnitude_key(acc[i]);
    });
    Algorithm::run(keys_.span(), k_);
    auto const key = keys_[k_ - 1];
    parts(n_, [&](worker_state& mine, std::uint64_t begin, std::uint64_t end) {
      count(mine, acc.subspan(begin, end - begin), key);
    });
    return compact(acc, key, out);
  }

 private:
  gs::host_buffer<gs::key_type> keys_;
};

/// All (key, index) pairs sorted by four digits of eight bits, least significant first.
class radix_sort : peer {
 public:
  radix_sort(std::uint64_t n, gs::index_type k, int threads) : peer{n, k, threads}, from_(n), to_(n) {}

  gs::index_type operator()(std::span<float const> acc, gs::selection_span out) {
    parts(n_, [&](worker_state&, std::uint64_t begin, std::uint64_t end) {
      for (auto i = begin; i < end; ++i) from_[i] = {gs::magnitude_key(acc[i]), static_cast<gs::index_type>(i)};
    });
    for (int shift = 0; shift < 32; shift += 8) {
      auto const digit = [=](pair const& each) { return 255 - ((each.key >> shift) & 255); };  // largest first
      auto const* const from = from_.data();
      auto* const to = to_.data();
      parts(n_, [&](worker_state& mine, std::uint64_t begin, std::uint64_t end) {
        std::array<std::uint32_t, 256> counts{};
        for (auto i = begin; i < end; ++i) ++counts[digit(from[i])];
        mine.counts.assign(counts.begin(), counts.end());
      });
      std::uint32_t place = 0;
      for (std::size_t d = 0; d < 256; ++d)
        for (auto& each : workers_) place += std::exchange(each.counts[d], place);
      parts(n_, [&](worker_state& mine, std::uint64_t begin, std::uint64_t end) {
        std::array<std::uint32_t, 256> places;
        std::copy_n(mine.counts.begin(), 256, places.begin());
        for (auto i = begin; i < end; ++i) to[places[digit(from[i])]++] = from[i];
      });
      std::swap(from_, to_);
    }
    for (gs::index_type i = 0; i < k_; ++i) {
      out.indices[i] = from_[i].index;
      out.values[i] = acc[from_[i].index];
    }
    return k_;
  }

 private:
  struct pair {
    gs::key_type key;
    gs::index_type index;
  };
  gs::host_buffer<pair> from_, to_;
};

}  // namespace bench
