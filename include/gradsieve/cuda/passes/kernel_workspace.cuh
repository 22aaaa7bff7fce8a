// A selector's workspace on a device: the members of the host's workspace, for all threads of a group together.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/random.hpp>
#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp_tiles.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Walks over a segment's tiles and candidates. `Read` gives the accumulator of an element.
template <bool FullGrid, class Read>
class segment_walk {
 public:
  __device__ segment_walk(thread_group<FullGrid>& group, tables const& t, Read const& read)
      : group_{group}, t_{t}, read_{read} {}

 protected:
  [[nodiscard]] __device__ device_segment of(accumulator_ref const acc) const { return t_.segments[acc.id]; }

  /// This block's share of a segment's tiles, or of its candidates: as many each as there are a tile, in whole warps.
  struct share {
    std::uint32_t first;
    std::uint32_t last;
    std::uint32_t each;   // candidates
    std::uint32_t count;  // of all
  };
  template <bool FromCandidates>
  [[nodiscard]] __device__ share share_of(accumulator_ref const acc) const {
    auto const mine = of(acc);
    std::uint64_t parts = mine.last - mine.first;
    std::uint32_t const count = FromCandidates ? t_.found[acc.id] : 0;
    std::uint32_t each = 32;
    if (FromCandidates && parts > 0) {
      each = (static_cast<std::uint32_t>(count / parts) / 32 + 1) * 32;
      parts = (count + each - 1) / each;
    }
    return {static_cast<std::uint32_t>(mine.first + parts * group_.block() / group_.blocks()),
            static_cast<std::uint32_t>(mine.first + parts * (group_.block() + 1) / group_.blocks()), each, count};
  }

  /// Calls body(index, value, is_valid) by a warp for 32 elements or candidates of a part at a time, in index order.
  template <bool FromCandidates, class Body>
  __device__ void over_part(device_segment const& mine, share const& all, std::uint32_t at, Body const& body) const {
    if constexpr (FromCandidates) {
      std::uint32_t const begin = (at - mine.first) * all.each;
      std::uint32_t const end = smaller(begin + all.each, all.count);
      for (std::uint32_t i = begin + lane_of_warp(); i - lane_of_warp() < end; i += 32)
        body(i < end ? t_.candidate_indices[mine.base + i] : 0, i < end ? t_.candidate_values[mine.base + i] : 0.0f,
             i < end);
    } else {
      over_tile<loads_at_once<FullGrid>>(t_.tiles[at], read_, body);
    }
  }

  /// Counts elements above a key and equal to it. Stores the counts by part; returns those of this block's share.
  template <bool FromCandidates, class Keep>
  __device__ std::uint64_t count_share(accumulator_ref const acc, key_type key, Keep const& keep) {
    auto const segment = of(acc);
    auto const mine = share_of<FromCandidates>(acc);
    std::uint64_t own = 0;
    for (std::uint32_t at = mine.first + threadIdx.x / 32; at < mine.last; at += group_warps) {
      kept_count here{};
      over_part<FromCandidates>(segment, mine, at, [&](std::uint32_t, float value, bool valid) {
        valid = valid && keep(value);
        here = here + kept_count::of(__ballot_sync(~0u, valid && magnitude_key(value) > key),
                                     __ballot_sync(~0u, valid && magnitude_key(value) == key));
      });
      if (lane_of_warp() == 0) own += t_.kept[at] = here.packed();
    }
    return group_.block_sum(own);
  }

  thread_group<FullGrid>& group_;
  tables const& t_;
  Read const& read_;
};

/// Sampled keys of a segment, as the host's key_sample.
template <bool FullGrid>
class device_sample {
 public:
  __device__ device_sample(thread_group<FullGrid>& group, key_type const* keys, std::uint64_t size)
      : group_{group}, keys_{keys}, size_{size} {}

  [[nodiscard]] __device__ std::uint64_t size() const { return size_; }

  /// Key of a rank; rank 1 is the largest.
  [[nodiscard]] __device__ __noinline__ key_type kth_largest(std::uint64_t rank) {
    detail::digit_search search{1, 0x7FFF'FFFFu, static_cast<index_type>(rank)};
    while (!search.done())
      group_.narrow(search, [&](auto const& add) {
        each(
            group_, size_, [&](std::uint64_t i) { return keys_[i]; },
            [&](key_type key, bool valid) { add(valid ? search.bin(key) : search.bins); });
      });
    threshold const at = search.result();
    if (at.ties > 0 || at.key == 0) return at.key;
    auto const smallest = group_.sum_over(size_, [&](std::uint64_t i, tile_sums& own) {
      if (keys_[i] > at.key) own.max_key = larger(own.max_key, ~keys_[i]);  // the largest complement
    });
    return ~smallest.max_key;
  }

  [[nodiscard]] __device__ std::uint64_t count_at_least(key_type key) {
    std::uint64_t count = 0;
    for (std::uint64_t i = group_.thread(); i < size_; i += group_.threads()) count += keys_[i] >= key ? 1 : 0;
    return group_.sum(count);
  }

  [[nodiscard]] __device__ double sum_abs() { return measure().sum_abs; }
  [[nodiscard]] __device__ std::uint64_t nonzero() { return measure().nonzero; }

 private:
  [[nodiscard]] __device__ tile_sums measure() {
    return group_.sum_over(size_, [&](std::uint64_t i, tile_sums& own) { own.add(magnitude_of(keys_[i])); });
  }

  thread_group<FullGrid>& group_;
  key_type const* keys_;
  std::uint64_t size_;
};

struct sample_buffer {
  key_type* keys;
  std::uint64_t size;
};

/// A selector's workspace in a kernel. Collective: all threads of a group call each member with the same arguments.
template <bool FullGrid, class Read>
class kernel_workspace : segment_walk<FullGrid, Read> {
  using walk = segment_walk<FullGrid, Read>;
  using walk::group_;
  using walk::of;
  using walk::read_;
  using walk::t_;

 public:
  __device__ kernel_workspace(thread_group<FullGrid>& group, tables const& t, Read const& read, sample_buffer samples,
                              bool measured)
      : walk{group, t, read}, samples_{samples}, measured_{measured} {}

  /// A sample of at most samples.size keys. Cost: `count` scattered reads, two calls of sync().
  [[nodiscard]] __device__ __noinline__ device_sample<FullGrid> sample(accumulator_ref const acc, std::uint64_t count,
                                                                       std::uint64_t seed = 0) {
    std::uint64_t const n = acc.values.size();
    count = smaller(count, smaller(n, samples_.size));
    detail::sample_places const places{n, count, mix(seed ^ mix(acc.step ^ mix(acc.first)))};
    group_.sync();  // whoever still reads the last sample
    for (std::uint64_t j = group_.thread(); j < count; j += group_.threads())
      samples_.keys[j] = magnitude_key(read_(static_cast<std::uint32_t>(acc.first + places[j])));
    group_.sync();
    return {group_, samples_.keys, count};
  }

  [[nodiscard]] __device__ candidates collected(accumulator_ref const acc) const { return candidates_of(t_, acc.id); }

  /// Collects a segment's candidates again, by another key. Cost: one pass over the segment.
  __device__ __noinline__ void collect_again(accumulator_ref const acc, key_type candidate_threshold) {
    counted_ = false;
    group_.sync();
    if (group_.is_first()) {
      t_.candidate_thresholds[acc.id] = candidate_threshold;
      ++t_.collections[acc.id];
    }
    group_.sync();
    auto const mine = of(acc);
    for (auto first = mine.first + group_.block() * group_warps; first < mine.last;
         first += group_.blocks() * group_warps) {
      std::uint32_t const at = first + threadIdx.x / 32;
      auto const segment = at < mine.last ? static_cast<std::uint32_t>(acc.id) : no_segment;
      collect_tile<loads_at_once<FullGrid>>(t_, read_, segment, at, candidate_threshold);
    }
    group_.sync();
  }

  /// Sums over a segment. Cost: one pass, or O(n / 4096) if the accumulate pass has measured already.
  [[nodiscard]] __device__ tile_sums measure(accumulator_ref const acc) {
    auto const mine = of(acc);
    return group_.sum_over(measured_ ? mine.last - mine.first : acc.values.size(),
                           [&](std::uint64_t i, tile_sums& own) {
                             if (measured_)
                               own = tile_sums::both(own, t_.sums[mine.first + i]);
                             else
                               own.add(read_(static_cast<std::uint32_t>(acc.first + i)));
                           });
  }

  [[nodiscard]] __device__ float mean_abs(accumulator_ref const acc) {
    auto const n = static_cast<double>(acc.values.size());
    return acc.values.empty() ? 0.0f : narrowed(measure(acc).sum_abs / n);
  }

  [[nodiscard]] __device__ float mean_of_maxima(accumulator_ref const acc) const { return t_.means[acc.id]; }

  /// Writes all candidates of a segment, with body(value) as the values; returns their number.
  template <class Body>
  __device__ index_type take_candidates(accumulator_ref const acc, selection_span out, Body const& body) {
    index_type const count = compact(acc, threshold{}, out);
    replace(out.values.first(smaller<std::uint64_t>(count, out.values.size())), body);
    return count;
  }

  /// Counts how a threshold was found, and the probes that it took.
  __device__ void note_threshold(threshold_origin origin, int probes) const {
    if (!group_.is_first()) return;
    atomicAdd(reinterpret_cast<unsigned long long*>(&t_.thresholds->by[static_cast<std::uint32_t>(origin)]), 1ull);
    atomicAdd(reinterpret_cast<unsigned long long*>(&t_.thresholds->probes), static_cast<unsigned long long>(probes));
  }

  /// Replaces each value by body(value). @pre compact() wrote them
  template <class Body>
  __device__ void replace(view<float> const values, Body const& body) const {
    group_.sync();
    for (std::uint64_t i = group_.thread(); i < values.size(); i += group_.threads()) values[i] = body(values[i]);
  }

  /// Number of elements of a segment that can be selected.
  [[nodiscard]] __device__ std::uint64_t selectable(accumulator_ref const acc) const {
    return cuda_kernels::selectable(t_, acc.id);
  }

  /// Writes the elements at these rising places among those of a segment that can be selected; returns their number.
  template <class Places>
  __device__ index_type take_places(accumulator_ref const acc, std::uint64_t count, Places const& places,
                                    selection_span out) const {
    count = smaller<std::uint64_t>(count, out.indices.size());
    for (std::uint64_t j = group_.thread(); j < count; j += group_.threads()) {
      auto const at = selectable_element(t_, acc.id, static_cast<std::uint32_t>(places[j]));
      out.indices[j] = at;
      out.values[j] = read_(at);
    }
    return static_cast<index_type>(count);
  }

  /// Number of elements whose key is at least `key`. Cost: one pass.
  [[nodiscard]] __device__ std::uint64_t count_at_least(accumulator_ref const acc, key_type key) {
    std::uint64_t count = 0;
    for (std::uint64_t i = group_.thread(); i < acc.values.size(); i += group_.threads())
      count += magnitude_key(read_(static_cast<std::uint32_t>(acc.first + i))) >= key ? 1 : 0;
    return group_.sum(count);
  }

  /// Sums what add(value, sums) adds for each element. Cost: one pass.
  template <std::size_t N, class Add>
  [[nodiscard]] __device__ __noinline__ whole_sums<N> add_up(accumulator_ref const acc, Add const& add) {
    whole_sums<N> own{};
    each(
        group_, acc.values.size(), [&](std::uint64_t i) { return read_(static_cast<std::uint32_t>(acc.first + i)); },
        [&](float value, bool valid) {
          if (valid) add(value, own);
        });
    whole_sums<N> total{};
    for (std::size_t s = 0; s < N; ++s) total[s] = group_.sum(own[s]);
    return total;
  }

  /// Number of a segment's candidates that a threshold keeps.
  [[nodiscard]] __device__ std::uint64_t count_candidates(accumulator_ref const acc, threshold const at) {
    float const* const values = t_.candidate_values + of(acc).base;
    kept_count own{};
    each(
        group_, t_.found[acc.id], [&](std::uint64_t i) { return values[i]; },
        [&](float value, bool valid) {
          key_type const key = magnitude_key(value);
          own = own + kept_count{valid && key > at.key ? 1u : 0u, valid && key == at.key ? 1u : 0u};
        });
    auto const total = kept_count::unpacked(group_.sum(own.packed()));
    return std::uint64_t{total.above} + smaller(total.equal, at.ties);
  }

  /// Threshold that keeps the k largest. From the candidates if they suffice; else by one counting pass at a sampled
  /// key, which is the answer if the k-th is equal to it, and up to three more.
  template <class Keep = keep_all>
  [[nodiscard]] __device__ __noinline__ threshold kth_largest(accumulator_ref const acc, index_type k, key_type low = 1,
                                                              Keep const& keep = {}) {
    key_type high = infinite_key - 1;
    if constexpr (is_all<Keep>) {
      auto const found = collected(acc);
      if (found.complete && (found.count >= k || found.threshold == 1)) {
        float const* const values = t_.candidate_values + of(acc).base;
        auto search = detail::digit_search::near(found.threshold, k);
        while (!search.done())
          group_.narrow(search, [&](auto const& add) {
            each(
                group_, found.count, [&](std::uint64_t i) { return values[i]; },
                [&](float value, bool valid) { add(valid ? search.bin(magnitude_key(value)) : search.bins); });
          });
        return search.result();
      }
      if (found.count >= k) low = larger(low, found.threshold);
      auto keys = sample(acc, 4096);
      auto const rank =
          static_cast<std::uint64_t>(static_cast<double>(keys.size()) * k / static_cast<double>(acc.values.size()));
      key_type const probe = clamped(keys.kth_largest(rank + 1), low, high);
      auto const [above, equal] = count_by_tile(acc, probe, keep);
      if (above < k && k <= above + equal) return {probe, k - above};
      if (above >= k) {
        low = probe + 1;
      } else {
        k -= above + equal;
        high = probe - 1;
      }
    }
    detail::digit_search search{low, high, k};
    while (!search.done())
      group_.narrow(search, [&](auto const& add) {
        each(
            group_, acc.values.size(),
            [&](std::uint64_t i) { return read_(static_cast<std::uint32_t>(acc.first + i)); },
            [&](float value, bool valid) {
              key_type const key = magnitude_key(value);
              add(valid && search.inside(key) && keep(value) ? search.bin(key) : search.bins);
            });
      });
    return search.result();
  }

  /// Writes what a threshold keeps, in index order; returns the number that it keeps.
  template <class Keep = keep_all>
  __device__ __noinline__ index_type compact(accumulator_ref const acc, threshold const at, selection_span out,
                                             Keep const& keep = {}) {
    if constexpr (is_all<Keep>) {
      key_type const needed = at.ties > 0 ? at.key : key_above(at.key);
      auto found = collected(acc);
      if (found.complete ? needed < found.threshold : needed > found.threshold && !has_counted(acc, at.key)) {
        collect_again(acc, larger<key_type>(needed, 1));
        found = collected(acc);
      }
      if (found.complete) return write<true>(acc, at, out, keep);
    }
    return write<false>(acc, at, out, keep);
  }

 private:
  template <class Keep>
  static constexpr bool is_all = std::is_same_v<Keep, keep_all>;

  /// Counts a segment's elements above a key and equal to it; its blocks store the counts by tile.
  template <class Keep>
  __device__ kept_count count_by_tile(accumulator_ref const acc, key_type key, Keep const& keep) {
    std::uint64_t before = 0;
    share_count_ = this->template count_share<false>(acc, key, keep);
    auto const total = kept_count::unpacked(group_.sum_of_blocks(share_count_, before));
    counted_ = true;
    counted_segment_ = acc.id;
    counted_key_ = key;
    return total;
  }
  [[nodiscard]] __device__ bool has_counted(accumulator_ref const acc, key_type key) const {
    return counted_ && counted_segment_ == acc.id && counted_key_ == key;
  }

  template <bool FromCandidates, class Keep>
  __device__ index_type write(accumulator_ref const acc, threshold const at, selection_span out, Keep const& keep) {
    if (FromCandidates || !is_all<Keep> || !has_counted(acc, at.key))
      share_count_ = this->template count_share<FromCandidates>(acc, at.key, keep);
    counted_ = false;
    std::uint64_t before = 0;
    auto const total = kept_count::unpacked(group_.sum_of_blocks(share_count_, before));
    auto const segment = of(acc);
    auto const mine = this->template share_of<FromCandidates>(acc);
    std::uint64_t const capacity = out.indices.size();
    for (std::uint32_t first = mine.first; first < mine.last; first += group_threads) {
      std::uint32_t const own = first + threadIdx.x;  // each thread finds where one part begins
      std::uint64_t const count = own < mine.last ? t_.kept[own] : 0;
      std::uint64_t start = 0;
      std::uint64_t const batch = group_.block_sum(count, start);
      if (own < mine.last) t_.kept[own] = before + start;
      before += batch;
      __syncthreads();
      std::uint32_t const end = smaller(first + group_threads, mine.last);
      for (std::uint32_t now = first + threadIdx.x / 32; now < end; now += group_warps) {
        auto [above, equal] = kept_count::unpacked(t_.kept[now]);
        auto const next = kept_count::unpacked(now + 1 < end ? t_.kept[now + 1] : before);
        std::uint64_t to = std::uint64_t{above} + smaller(equal, at.ties);
        if (to == std::uint64_t{next.above} + smaller(next.equal, at.ties) || to >= capacity) continue;  // nothing here
        auto const body = [&](std::uint32_t index, float value, bool valid) {
          key_type const key = magnitude_key(value);
          valid = valid && keep(value);
          std::uint32_t const ties = __ballot_sync(~0u, valid && key == at.key);
          bool const take = valid && (key > at.key || (key == at.key && equal + rank_in(ties) < at.ties));
          std::uint32_t const all = __ballot_sync(~0u, take);
          std::uint64_t const place_here = to + rank_in(all);
          if (take && place_here < capacity) {
            out.indices[place_here] = index;
            out.values[place_here] = value;
          }
          to += __popc(all);
          equal += __popc(ties);
        };
        this->template over_part<FromCandidates>(segment, mine, now, body);
      }
      __syncthreads();
    }
    return total.above + smaller(total.equal, at.ties);
  }

  sample_buffer samples_;
  bool measured_;
  bool counted_ = false;
  std::uint64_t counted_segment_ = 0;
  key_type counted_key_ = 0;
  std::uint64_t share_count_ = 0;
};

}  // namespace gradsieve::cuda_kernels
