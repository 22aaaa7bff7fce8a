// A search for a key by its digits, counted by all workers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/team.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// A histogram of digits for each worker, and their sum. Memory: 8 KiB a worker.
class digit_histograms {
 public:
  explicit digit_histograms(host_team const& team)
      : counts_(static_cast<std::size_t>(team.size() + 1) * digit_search::bins) {}

  /// Goes through a search: pass(counter) counts all keys, those that worker w finds by counter(w)(key).
  template <class Pass>
  [[nodiscard]] threshold search(digit_search at, host_team const& team, Pass const& pass) {
    auto const total = of(team.size());
    auto const counter = [&](int worker) {
      return [&at, to = of(worker).data()](key_type key) {
        if (at.inside(key)) ++to[at.bin(key)];
      };
    };
    while (!at.done()) {
      std::fill_n(counts_.data(), counts_.size(), 0u);
      pass(counter);
      for (int w = 0; w < team.size(); ++w)
        for (std::size_t b = 0; b < digit_search::bins; ++b) total[b] += of(w)[b];
      at.next(total);
    }
    return at.result();
  }

 private:
  /// A worker's histogram; behind the last one stands their sum.
  [[nodiscard]] std::span<std::uint32_t> of(int worker) noexcept {
    return counts_.span().subspan(static_cast<std::size_t>(worker) * digit_search::bins, digit_search::bins);
  }

  host_buffer<std::uint32_t> counts_;
};

}  // namespace gradsieve::detail
