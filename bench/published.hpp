// Selectors as they are published, for the LDTE-BS paper's comparison: own plain code, on the same team as the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "peers.hpp"

namespace bench {

/// Radix select as it is published (Alabi et al. 2012, the one that LDTE-BS compares with): digits of eight bits, most
/// significant first. The keys that have the first digit are written down on the way to the second, and what follows
/// reads those alone; then a pass that collects. Its counts are those of the histograms.
class published_radix : peer {
 public:
  published_radix(std::uint64_t n, gs::index_type k, int threads) : peer{n, k, threads}, keys_(n) {}

  gs::index_type operator()(std::span<float const> acc, gs::selection_span out) {
    for (auto& each : workers_) each.above = 0;
    gs::key_type prefix = 0;
    gs::key_type mask = 0;  // of the digits that are known
    std::uint64_t wanted = k_;
    for (int shift = 24; shift >= 0; shift -= 8) {
      parts(n_, [&](worker_state& mine, std::uint64_t begin, std::uint64_t end) {
        mine.counts.assign(copies * 256, 0);
        auto* const counts = mine.counts.data();
        auto* const kept = keys_.data() + begin;
        auto const values = acc.subspan(begin, end - begin);
        auto const count = [=](std::size_t i, gs::key_type key) {
          ++counts[i % copies * 256 + ((key >> shift) & 255)];
        };
        std::size_t at = 0;
        auto const keep = [&](gs::key_type key) {
          kept[at] = key;
          count(at++, key);
        };
        auto const matches = [=](gs::key_type key) { return (key & mask) == prefix; };
        if (shift == 24)
          for (std::size_t i = 0; i < values.size(); ++i) count(i, gs::magnitude_key(values[i]));
        else if (shift == 16)
          filter(values, matches, [&](std::size_t i) { keep(gs::magnitude_key(values[i])); });
        else
          for (std::size_t i = 0; i < mine.kept; ++i)
            if (matches(kept[i])) keep(kept[i]);
        mine.kept = at;
        for (std::size_t d = 0; d < 256; ++d)
          for (std::size_t c = 1; c < copies; ++c) counts[d] += counts[c * 256 + d];
      });
      std::size_t digit = 255;
      for (;; --digit) {
        std::uint64_t here = 0;
        for (auto const& each : workers_) here += each.counts[digit];
        if (here >= wanted || digit == 0) break;
        for (auto& each : workers_) each.above += each.counts[digit];
        wanted -= here;
      }
      for (auto& each : workers_) each.equal = each.counts[digit];
      prefix |= static_cast<gs::key_type>(digit << shift);
      mask |= gs::key_type{255} << shift;
    }
    return compact(acc, prefix, out);
  }

 private:
  static constexpr std::size_t copies = 4;  // equal digits in a row do not wait for each other
  gs::host_buffer<gs::key_type> keys_;
};

/// The two-level selection of Deep Gradient Compression's code: a strided sample of 1 % gives the threshold, a pass
/// collects what reaches it, again with a lower one where that is less than 0.8 k; more than k are selected from again.
class published_hierarchical : peer {
 public:
  published_hierarchical(std::uint64_t n, gs::index_type k, int threads)
      : peer{n, k, threads}, keys_(std::max<std::uint64_t>(n / stride + 1, 2 * std::uint64_t{k})) {
    for (auto& each : workers_) {
      each.indices.reserve(2 * std::size_t{k} / workers_.size() + 64);
      each.values.reserve(each.indices.capacity());
    }
  }

  gs::index_type operator()(std::span<float const> acc, gs::selection_span out) {
    auto threshold = gs::bit_cast<float>(sampled_key(acc));
    auto count = survivors(acc, gs::magnitude_key(threshold));
    for (int tries = 0; tries < 10 && count < k_ - k_ / 5; ++tries)
      count = survivors(acc, gs::magnitude_key(threshold *= 0.8f));
    gs::key_type const kth = count > k_ ? kth_survivor(count) : 0;
    parts(n_, [&](worker_state& mine, std::uint64_t, std::uint64_t) { peer::count(mine, mine.values, kth); });
    auto const written = place();
    parts(n_, [&](worker_state& mine, std::uint64_t, std::uint64_t) {
      write(mine, mine.values, kth, out, [&](std::size_t i) { return mine.indices[i]; });
    });
    return written;
  }

 private:
  static constexpr std::uint64_t stride = 100;

  gs::key_type sampled_key(std::span<float const> acc) {
    auto const sample = keys_.first((n_ + stride - 1) / stride);
    parts(sample.size(), [&](worker_state&, std::uint64_t begin, std::uint64_t end) {
      for (auto i = begin; i < end; ++i) sample[i] = gs::magnitude_key(acc[i * stride]);
    });
    auto const ratio = static_cast<double>(k_) / static_cast<double>(n_);
    auto const rank = static_cast<std::ptrdiff_t>(std::ceil(ratio * static_cast<double>(sample.size())));
    nth_element::run(sample, rank);
    return sample[static_cast<std::size_t>(rank - 1)];
  }

  std::uint64_t survivors(std::span<float const> acc, gs::key_type key) {
    parts(n_, [&](worker_state& mine, std::uint64_t begin, std::uint64_t end) {
      mine.indices.clear();
      mine.values.clear();
      filter(
          acc.subspan(begin, end - begin), [=](gs::key_type here) { return here >= key; },
          [&](std::size_t i) {
            mine.indices.push_back(static_cast<gs::index_type>(begin + i));
            mine.values.push_back(acc[begin + i]);
          });
    });
    std::uint64_t total = 0;
    for (auto const& each : workers_) total += each.values.size();
    return total;
  }

  gs::key_type kth_survivor(std::uint64_t count) {
    if (keys_.size() < count) keys_ = gs::host_buffer<gs::key_type>(count);
    std::size_t at = 0;
    for (auto const& each : workers_)
      for (float const value : each.values) keys_[at++] = gs::magnitude_key(value);
    nth_element::run(keys_.first(count), k_);
    return keys_[k_ - 1];
  }

  gs::host_buffer<gs::key_type> keys_;
};

}  // namespace bench
