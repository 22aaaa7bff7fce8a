// The workspace of a device: one compressor's tables and scratch on a GPU, and the launches of its passes.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/accumulate.cuh>
#include <gradsieve/cuda/passes/choose.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/mark_bins.cuh>
#include <gradsieve/cuda/passes/select.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/write_entries.cuh>
#include <gradsieve/cuda/small_step.cuh>
#include <gradsieve/cuda/step_memory.cuh>
#include <gradsieve/cuda/stream_work.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/host/passes/tiles.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Tables and scratch of one gradient's kernels: tiles, segments, candidates, samples. Passes are enqueued on the
/// device's stream; plan() allocates and waits.
/// Memory: 9 bytes for each of 2 * expected + 65536 candidates, with several segments 8 an expected entry; 72 a tile;
/// up to 4 MiB for samples, 32 KiB a block for small segments, 24 KiB for each of 128 large ones; 4 an element of small
/// gradients with excluded layers.
class cuda_workspace : public detail::stream_work {
 public:
  using entry_list = cuda_kernels::entry_list;

  cuda_workspace(device const& where, std::uint64_t n) : detail::stream_work{where}, n_{n} {
    cells_ = static_cast<std::uint32_t>((n + cuda_kernels::cell_size - 1) / cuda_kernels::cell_size);
    launch_state_ = zeroed<cuda_kernels::launch_state>(1);
    steps_ = zeroed<std::uint64_t>(1);
    taken_ = zeroed<cuda_kernels::taken_state>(1);
    tables_.n = n_;
    tables_.cell_count = cells_;
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return n_; }

  /// Makes accumulate() collect by the last step's segments, from the next plan() on. Twice the memory for candidates.
  void collect_speculatively() noexcept { speculative_.want(); }

  /// Plans segments and excluded ranges, which are disjoint and in order, and forgets all warm thresholds. Waits,
  /// allocates. `bins`: bin length in each segment, for a selector with bins; 20 bytes a bin and a bit an element more.
  void plan(std::span<segment const> segments, std::span<range const> excluded, std::uint64_t expected,
            std::span<std::uint32_t const> bins = {}) {
    detail::host_tiles tiles;
    tiles.plan(n_, segments, excluded);
    static_assert(host_kernels::tile_size == cuda_kernels::cell_size);
    std::vector<cuda_kernels::tile> table(tiles.size());
    std::vector<std::uint32_t> positions(tiles.size());
    std::vector<std::uint32_t> first_of_cell(cells_ + 1, static_cast<std::uint32_t>(tiles.size()));
    for (std::size_t t = tiles.size(); t-- > 0;) {
      auto const& from = tiles[t];
      table[t] = {static_cast<std::uint32_t>(from.begin), from.size, from.segment, from.excluded ? 1u : 0u};
      positions[t] = from.position;
      first_of_cell[from.begin / cuda_kernels::cell_size] = static_cast<std::uint32_t>(t);
    }
    expected_ = expected;
    capacity_ = std::min(n_, 2 * expected + 65536);
    segments_.clear();
    selectable_.clear();
    bool of_blocks = false;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      auto const& each = segments[s];
      selectable_.push_back(tiles.elements_of(s));
      segments_.push_back({static_cast<std::uint32_t>(each.offset), static_cast<std::uint32_t>(each.size),
                           static_cast<std::uint32_t>(tiles.of(s).first), static_cast<std::uint32_t>(tiles.of(s).last),
                           0, 0, 0, 0, 0, 0, 0, 0, 0});
      of_blocks = of_blocks || (segments.size() > 1 && each.size <= cuda_kernels::most_of_block);
    }
    // The old tables may still be in use.
    where().synchronize();
    tiles_ = uploaded<cuda_kernels::tile>(table);
    positions_ = uploaded<std::uint32_t>(positions);
    cell_tiles_ = uploaded<std::uint32_t>(first_of_cell);
    device_segments_ = uploaded<cuda_kernels::device_segment>(segments_);
    warm_thresholds_ = zeroed<warm_threshold>(segments.size());
    candidate_thresholds_ = zeroed<key_type>(segments.size());
    counts_.plan(*this, segments.size());
    written_ = zeroed<std::uint32_t>(segments.size());
    starts_ = zeroed<std::uint32_t>(segments.size() + 1);
    tile_counts_ = zeroed<std::uint64_t>(tiles.size());
    kept_ = zeroed<std::uint64_t>(tiles.size());
    sums_ = zeroed<cuda_kernels::tile_sums>(tiles.size());
    auto const places = speculative_.plan(*this, segments.size(), capacity_, counts_.open());
    candidate_indices_ = buffer<index_type>(where(), places);
    candidate_values_ = zeroed<float>((places + 3) / 4 * 4);  // read in loads of 4
    std::uint64_t const by_size = std::max<std::uint64_t>(
        {std::min<std::uint64_t>(n_ / 2048, 64), n_ / 16384, segments.size() > 1 ? segments.size() : 0});
    auto const most = std::min<std::uint64_t>(static_cast<std::uint64_t>(processors()) * cuda_kernels::group_blocks,
                                              cuda_kernels::most_blocks);
    blocks_ = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(where().search_blocks != 0 ? where().search_blocks : by_size, 1, most));
    std::uint64_t const of_all = std::min(n_, cuda_kernels::most_samples);
    samples_ = buffer<key_type>(where(), of_all + (of_blocks ? blocks_ * cuda_kernels::samples_of_block : 0));
    order_ = zeroed<std::uint32_t>(2 * segments.size() + 1);
    teams_ = zeroed<cuda_kernels::team_state>(std::clamp<std::uint64_t>(
        std::min<std::uint64_t>(segments.size(), capacity_ / cuda_kernels::most_alone), 1, cuda_kernels::most_teams));
    memory_ = {launch_state_.data(),
               teams_.data(),
               static_cast<std::uint32_t>(teams_.size()),
               order_.data(),
               order_.data() + segments.size(),
               {samples_.data(), of_all},
               {samples_.data() + of_all, of_blocks ? cuda_kernels::samples_of_block : 0}};
    choices_.plan(*this, segments.size(), expected, places);
    bins_.plan(*this, n_, segments, excluded, bins);
    parts_indices_ = buffer<index_type>(where(), segments.size() > 1 ? expected : 0);
    parts_values_ = buffer<float>(where(), segments.size() > 1 ? expected : 0);
    tables_ = {n_, static_cast<std::uint32_t>(tiles.size()), cells_, static_cast<std::uint32_t>(segments.size()),
               !excluded.empty(), tiles_.data(), positions_.data(), cell_tiles_.data(), device_segments_.data(),
               warm_thresholds_.data(), candidate_thresholds_.data(), written_.data(), starts_.data(), steps_.data(),
               taken_.data(), tile_counts_.data(), candidate_indices_.data(), candidate_values_.data(), sums_.data(),
               kept_.data(), bins_.means()};
    counts_.fill(tables_);
    small_.plan(*this, tables_, expected > cuda_kernels::most_alone / 4 * 3 || where().search_blocks != 0);
  }

  /// Allocates an empty list for `size` entries.
  [[nodiscard]] auto make_list(std::uint64_t size) const { return detail::list_memory::make(*this, size, cells_); }

  /// Fills `table` with a step's segments, in which k is `segments[s].k`, or 0 where `mine(s)` is false. On any thread.
  template <class Capacity, class Mine>
  void describe_step(std::span<segment const> segments, Capacity const& capacity, Mine const& mine,
                     std::span<cuda_kernels::device_segment> table) const {
    std::uint64_t base = 0;
    std::uint64_t out = 0;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      auto& to = table[s];
      to = segments_[s];
      to.k = mine(s) ? segments[s].k : 0;
      std::uint64_t const entries =
          to.k == 0 ? 0 : std::min<std::uint64_t>({capacity(to.k), selectable_[s], expected_ - out});
      std::uint64_t const spare = n_ == 0 ? 0 : 65536 * std::uint64_t{to.size} / n_;
      to.base = static_cast<std::uint32_t>(base);
      to.capacity =
          static_cast<std::uint32_t>(std::min<std::uint64_t>({2 * entries + spare, to.size, capacity_ - base}));
      to.out = static_cast<std::uint32_t>(out);
      to.out_capacity = static_cast<std::uint32_t>(std::min<std::uint64_t>(entries, to.size));
      base += to.capacity;
      out += to.out_capacity;
    }
  }

  /// Uploads a step's segments, before its accumulate pass or, with collect_speculatively(), after it.
  template <int = 0>
  void upload_segments(std::span<cuda_kernels::device_segment const> table) {
    speculative_.upload(*this, table, device_segments_.span(), tables_);
  }

  [[nodiscard]] std::uint64_t selectable(std::size_t s) const noexcept { return selectable_[s]; }  ///< elements

  /// Sets k for the step that begins, where owners rotate.
  template <int = 0>
  void take_turns(int world) {
    if (device_segments_.size() > 0)
      launch<cuda_kernels::take_turns<>>(1, 256, device_segments_.data(), tables_.segment_count, tables_.step,
                                         static_cast<std::uint32_t>(world));
  }

  [[nodiscard]] buffer<warm_threshold> const& warm_thresholds() const noexcept { return warm_thresholds_; }
  [[nodiscard]] std::span<std::uint64_t> step() const noexcept { return steps_.span(); }
  [[nodiscard]] cuda_kernels::taken_state* taken() const noexcept { return taken_.data(); }
  [[nodiscard]] detail::step_counts const& counts() const noexcept { return counts_; }
  [[nodiscard]] cuda_kernels::tables const& tables() const noexcept { return tables_; }

  [[nodiscard]] bool is_small() const noexcept { return small_.fits(); }  ///< for step_at_once()

  void forget_candidates() const { zero(candidate_thresholds_); }  // the next pass collects none

  /// Predicts the keys to collect from. `read` gives what the accumulate pass will write or, `after_pass`, has written.
  template <class Selector, class Read, class Stored>
  void predict(Selector const& chosen, Read const& read, Stored const* accumulator, bool after_pass) {
    if (tables_.segment_count > 0)
      launch_group<cuda_kernels::predict<Selector, Read, Stored>>(after_pass, blocks_, cuda_kernels::group_threads,
                                                                  chosen, read, accumulator, tables_, memory_,
                                                                  speculative_.candidates());
  }

  /// The previous work may be any kernel. select() or forget_counts() follows.
  template <bool Collect, bool Measure, class T, class Residual>
  void accumulate(cuda_kernels::incoming<T, Residual> const& in) {
    if (tables_.tile_count > 0)
      launch<cuda_kernels::accumulate<Collect, Measure, T, Residual>>(
          tables_.tile_count, cuda_kernels::accumulate_threads, in, speculative_.for_pass(tables_));
  }

  /// Call after accumulate() if no select() follows.
  template <int = 0>
  void forget_counts() const {
    launch<cuda_kernels::forget_counts<>>(1, 256, tables_);
  }

  /// For a selector with bins, after accumulate(): makes what it keeps the segments' candidates. Cost: a read of the
  /// accumulator, for scores one of the gradient; bins of more than 512 elements are read again, from a cache.
  template <class Chosen, class T, class Residual>
  void keep_bins(Chosen const& chosen, cuda_kernels::incoming<T, Residual> const& in) {
    if (tables_.segment_count == 0) return;
    auto const& bins = bins_.tables();
    over_early<cuda_kernels::mark_bins<Chosen, T, Residual>, cuda_kernels::mark_threads, cuda_kernels::mark_blocks>(
        32 * std::uint64_t{bins.bin_count} + 1, chosen, in, tables_, bins);
    unsigned const blocks = of_warps(tables_.tile_count, cuda_kernels::bin_threads);
    launch_early<cuda_kernels::list_marks<quantising_selector<Chosen>, stored_t<Residual>>>(
        blocks, cuda_kernels::bin_threads, in.states[0], tables_, bins);
  }

  /// Counts in counts() what accumulate() would find not finite.
  template <class T, class Residual>
  void count_not_finite(cuda_kernels::incoming<T, Residual> const& in) {
    zero_one(counts_.non_finite());
    over<cuda_kernels::count_not_finite<T, Residual>>(n_, in, tables_);
  }

  /// Squared norms, one per segment, of what accumulate<.., true> has measured; then the number of the step.
  template <int = 0>
  void segment_norms(double* norms) {
    if (tables_.segment_count > 0)
      launch_early<cuda_kernels::segment_norms<>>(tables_.segment_count, cuda_kernels::norm_threads, tables_, norms);
  }

  /// Collects candidates from memory, by the keys of predict().
  template <class Stored>
  void collect(Stored const* accumulator) {
    if (tables_.segment_count > 0)
      launch_early<cuda_kernels::collect<Stored>>(of_warps(tables_.tile_count, cuda_kernels::collect_threads),
                                                  cuda_kernels::collect_threads, accumulator, tables_,
                                                  speculative_.candidates());
  }

  /// Writes the selected entries of all segments in index order, and advances the step counter. `leaves`: the next
  /// accumulate pass collects by the warm thresholds, unless predict() is called before.
  template <class Selector, class Stored>
  void select(Selector const& chosen, Stored const* accumulator, bool measured, bool leaves, entry_list const& out) {
    auto const& choices = choices_.tables();
    cuda_kernels::list_end const end{out.count, leaves};
    auto const lists = segments_.size() == 1 ? out : entry_list{parts_indices_.data(), parts_values_.data()};
    launch_group<cuda_kernels::select_entries<Selector, Stored>>(true, blocks_, cuda_kernels::group_threads, chosen,
                                                                 accumulator, tables_, memory_, choices, measured,
                                                                 lists, end);
    if (tables_.tile_count > 0)
      launch_early<cuda_kernels::write_entries<Selector>>(std::max(choices.part_count, 1u), cuda_kernels::write_threads,
                                                          chosen, tables_, choices, lists, out);
  }

  /// accumulate() and select() in one launch, with the same results. @pre is_small()
  template <class Selector, class Incoming>
  void step_at_once(Selector const& chosen, Incoming const& in, bool leaves, entry_list const& out) {
    small_.run(*this, chosen, in, tables_, memory_, choices_.tables(), out, leaves);
  }

 private:
  [[nodiscard]] static unsigned of_warps(std::uint32_t count, unsigned threads) noexcept {  // blocks
    return (count + threads / 32 - 1) / (threads / 32);
  }

  std::uint64_t n_, expected_ = 0, capacity_ = 0;
  std::uint32_t cells_ = 0, blocks_ = 1;
  std::vector<cuda_kernels::device_segment> segments_;  // without the members that each step sets
  std::vector<std::uint64_t> selectable_;               // elements of each segment
  cuda_kernels::tables tables_;
  cuda_kernels::search_memory memory_{};
  buffer<cuda_kernels::launch_state> launch_state_;
  buffer<cuda_kernels::team_state> teams_;
  buffer<std::uint64_t> steps_, tile_counts_, kept_;
  buffer<cuda_kernels::taken_state> taken_;
  buffer<cuda_kernels::tile> tiles_;
  buffer<std::uint32_t> positions_, cell_tiles_, written_, starts_, order_;
  buffer<cuda_kernels::device_segment> device_segments_;
  detail::speculative_memory speculative_;
  buffer<warm_threshold> warm_thresholds_;
  buffer<key_type> candidate_thresholds_, samples_;
  detail::step_counts counts_;
  buffer<cuda_kernels::tile_sums> sums_;
  buffer<index_type> candidate_indices_, parts_indices_;
  buffer<float> candidate_values_, parts_values_;
  detail::choice_memory choices_;
  detail::bin_memory bins_;
  detail::small_steps small_;
};

}  // namespace gradsieve

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Clamps the values of up to `most` entries to +-limit, and counts larger ones. No launch if none can be larger.
template <int = 0>
void saturate_entries(cuda_workspace const& work, cuda_kernels::entry_list const& own, std::uint64_t most,
                             float limit, std::uint64_t* beyond) {
  if (magnitude_key(limit) < infinite_key - 1)
    work.over_early<cuda_kernels::saturate_entries<>>(most, own, limit, beyond);
}

}  // namespace gradsieve::detail
