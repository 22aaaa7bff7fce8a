// Exchanges on a device: in stream order, with messages of fixed size, so that no rank waits for a count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/codec/messages.cuh>
#include <gradsieve/cuda/exchange/value_sum.cuh>
#include <gradsieve/cuda/passes/scan.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/gather.hpp>
#include <gradsieve/exchange/index_union.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// How an exchange policy runs on a device; specialise it for your own, or derive from device_exchange<gather, Codec>.
/// Default-constructible. `reserve(work, codec, info, world, most, disjoint)` allocates; `most_sent()` bounds
/// the entries that a rank gives up beyond those selected; `list()` is where the selector's entries go, or null if
/// those are what is given up; `run()`, with a device_round, is collective, only enqueues, compares the ranks'
/// decisions and sets the error. `has_places()` is optional: true if each segment has fixed places in every rank's
/// list, `device_segment::slot`, and one that is `full` is listed there too.
template <class Exchange, class Codec>
class device_exchange;

/// @cond internal
/// Argument of a device exchange's run().
template <class Comm, class Stored, class Codec>
struct device_round {
  Comm const& comm;
  cuda_workspace& work;
  device_codec<Codec> const& how;  ///< for writing
  message_info info;
  cuda_kernels::entry_list sent;  ///< what this rank gives up
  Stored const* accumulator;      ///< of all elements
  std::uint64_t const* decision;  ///< must be equal on all ranks
  std::uint64_t* error;           ///< not 0: the exchange failed, nothing is given up; before run(): this rank failed
  float limit;                    ///< of values that the communicator sums
  std::uint64_t* saturated;       ///< counts values that are clamped to the limit
  cuda_kernels::exchange_end end{};  ///< with `fills` where run() may do that
};

/// Updates to add up, in device memory, and the bytes they took.
struct device_updates {
  cuda_kernels::update* updates = nullptr;
  std::uint32_t senders = 0;  ///< number of updates, at least one, which may be empty
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t unlisted = 0;  ///< entries of an update at most, if directories must be made; 0: they exist
  cuda_kernels::message_state const* message = nullptr;  ///< of the message that this rank sent, if any
  std::byte const* sent = nullptr;                       ///< that message
  bool after_kernel = false;  ///< run() ended with a kernel of the library: the next may start early
  bool ended = false;         ///< by device_round::end
};

/// Overwrites the gradient, in the cells of `part`, with the updates' sum / divisor, zero elsewhere; counts elements in
/// `touched`, and in `saturated` those that its format cannot hold. @pre the stream's last work is a kernel of the
/// library
template <class T>
void write_update(cuda_workspace const& work, device_updates const& from, float divisor, std::span<T> out, range part,
                  std::uint64_t* touched, std::uint64_t* saturated) {
  using cuda_kernels::cell_size;
  auto const first = static_cast<std::uint32_t>(part.offset / cell_size);
  if (auto const end = static_cast<std::uint32_t>((part.offset + part.size + cell_size - 1) / cell_size); end > first)
    work.launch_early<cuda_kernels::apply_updates<T>>(end - first, cuda_kernels::apply_threads, from.updates,
                                                      from.senders, divisor, first, out.data(), work.size(), touched,
                                                      saturated);
}

/// Slots have the size of the longest message, the codec's max_bytes(), as no rank waits for real sizes: a codec whose
/// messages vary in length saves nothing. Memory: a slot per rank and one more, 4 bytes per 4096 elements and rank, and
/// what the codec needs to read.
template <class Codec>
class device_exchange<gather, Codec> {
 public:
  void reserve(cuda_workspace const& work, Codec const& how, message_info const info, int world, std::uint64_t most,
               bool) {
    auto const ranks = static_cast<std::uint64_t>(world);
    slot_ = (envelope + how.max_bytes(info.n, most, 0) + 15) / 16 * 16;
    mine_ = work.zeroed<std::byte>(slot_);
    all_ = work.zeroed<std::byte>(slot_ * ranks);
    state_ = work.zeroed<cuda_kernels::message_state>(1);
    decoded_.reserve(work, how, *info.layers, most, static_cast<std::uint32_t>(world));
  }

  [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }
  [[nodiscard]] cuda_kernels::entry_list const* list() const noexcept { return nullptr; }

  template <class Comm, class Stored>
  device_updates run(device_round<Comm, Stored, Codec> const& round) {
    return run(round, round.how);
  }
  /// With a codec that was reserved for as many entries as this.
  template <class Comm, class Stored>
  device_updates run(device_round<Comm, Stored, Codec> const& round, device_codec<Codec> const& how) {
    auto info = round.info;
    info.passthrough = 0;  // those layers are all-reduced
    cuda_workspace& work = round.work;
    auto const senders = decoded_.senders();
    how.send(work, info, round.sent, nullptr, {mine_.data() + envelope, slot_ - envelope, state_.data()},
             {round.decision, work.step().data(), round.error});
    round.comm.all_gather(work.where(), std::span<std::byte const>{mine_.span()}, all_.span());
    bool const ended = decoded_.read(work, info, all_.data(), slot_, envelope, nullptr, round.error, round.end);
    return {decoded_.updates(),      senders, slot_, slot_ * (senders - 1), decoded_.most(), state_.data(),
            mine_.data() + envelope, true,    ended};
  }

 private:
  static constexpr std::uint64_t envelope = 8 * cuda_kernels::envelope_words;

  std::uint64_t slot_ = 0;
  cuda_buffer<std::byte> mine_, all_;
  cuda_buffer<cuda_kernels::message_state> state_;
  device_decoded_messages<Codec> decoded_;
};

/// Lists marked elements, a bit each, in index order with their values.
class marked_elements {
 public:
  void reserve(cuda_workspace const& work) {
    auto const cells = work.tables().cell_count;
    bits_ = work.zeroed<std::uint32_t>(std::uint64_t{cells} * cuda_kernels::words_of_cell);
    counts_ = work.zeroed<std::uint32_t>(cells + 1);
    update_ = work.zeroed<cuda_kernels::update>(1);
  }

  [[nodiscard]] std::uint32_t* none(cuda_workspace const& work) const {  ///< the bits, to be marked
    work.zero(bits_);
    return bits_.data();
  }

  /// Writes them to `to`, with its directory, and their values, clamped to +-limit, also to `sums`, where zeros follow
  /// up to `capacity`. Returns both as an update. @pre a kernel has marked
  template <class Stored>
  cuda_kernels::update* list(cuda_workspace const& work, Stored const* values, std::uint64_t capacity,
                             cuda_kernels::entry_list const& to, float* sums, float limit,
                             std::uint64_t* saturated) const {
    auto const cells = work.tables().cell_count;
    constexpr auto threads = cuda_kernels::words_of_cell;
    if (cells > 0) work.launch_early<cuda_kernels::count_bits<>>(cells, threads, bits_.data(), counts_.data());
    work.launch_early<cuda_kernels::exclusive_sums<std::uint32_t>>(1, cuda_kernels::scan_threads, counts_.data(),
                                                                   to.cells, std::uint64_t{cells} + 1);
    if (cells > 0)
      work.launch_early<cuda_kernels::write_union<Stored>>(cells, threads, bits_.data(), values, capacity, to, sums,
                                                           limit, saturated, update_.data());
    return update_.data();
  }

 private:
  cuda_buffer<std::uint32_t> bits_, counts_;
  cuda_buffer<cuda_kernels::update> update_;
};

template <class Codec>
class device_exchange<index_union, Codec> {
 public:
  void reserve(cuda_workspace const& work, Codec const& how, message_info const info, int world, std::uint64_t most,
               bool disjoint) {
    auto const ranks = static_cast<std::uint64_t>(world);
    disjoint_ = disjoint;
    most_ = most;
    union_ = std::min(disjoint ? most : most * ranks, info.n);
    own_ = work.make_list(most);
    own_list_ = own_.list();
    std::uint64_t const list = most + cuda_kernels::signature_words;
    mine_ = work.zeroed<std::uint32_t>(disjoint ? 0 : list);
    all_ = work.zeroed<std::uint32_t>(disjoint ? most + cuda_kernels::vote_words : list * ranks);
    marked_.reserve(work);
    sums_ = work.zeroed<float>(union_);
    values_ = summed_values<Codec>::of(how);
    sum_.reserve(work, values_, union_, false, world);
  }

  [[nodiscard]] std::uint64_t most_sent() const noexcept { return union_; }
  [[nodiscard]] cuda_kernels::entry_list const* list() const noexcept { return &own_list_; }

  [[nodiscard]] static constexpr bool has_places() noexcept { return true; }

  template <class Comm, class Stored>
  device_updates run(device_round<Comm, Stored, Codec> const& round) {
    cuda_workspace& work = round.work;
    auto const& where = work.where();
    cuda_kernels::signature const signature{round.decision, work.step().data()};
    if (disjoint_) {
      work.zero(all_);
      if (work.tables().segment_count > 0)
        work.launch<cuda_kernels::list_choices<>>(work.tables().segment_count, 256, work.tables(), own_list_, most_,
                                                  all_.data());
      cuda_kernels::ballot const own{round.decision, work.step().data(), round.error,
                                     static_cast<std::uint32_t>(round.comm.rank()), all_.data() + most_};
      work.launch_early<cuda_kernels::vote<>>(1, 1, own);
      round.comm.all_reduce(where, all_.span(), reduction::max);
      work.launch<cuda_kernels::count_votes<>>(1, 1, own);
    } else {
      work.over_early<cuda_kernels::list_entries<>>(mine_.size(), own_list_, most_, round.error, signature,
                                                    mine_.data());
      round.comm.all_gather(where, std::as_bytes(mine_.span()), std::as_writable_bytes(all_.span()));
    }
    auto* const bits = marked_.none(work);
    std::uint64_t const listed = disjoint_ ? most_ : all_.size();
    work.over<cuda_kernels::mark_choices<>>(listed, all_.data(), listed, work.size(), mine_.size(), signature, bits,
                                            round.error);
    auto* const update =
        marked_.list(work, round.accumulator, union_, round.sent, sums_.data(),
                     detail::largest_summed(values_, round.info, round.comm.size(), round.limit), round.saturated);
    auto const moved = sum_.run(round.comm, work, round.sent, sums_.span());
    std::uint64_t const given = disjoint_ ? all_.size() : mine_.size();
    std::uint64_t const got = disjoint_ ? all_.size() : all_.size() - mine_.size();
    return {update, 1, 4 * given + moved.sent, 4 * got + moved.received};
  }

 private:
  bool disjoint_ = false;
  std::uint64_t most_ = 0;
  std::uint64_t union_ = 0;
  detail::list_memory own_;
  cuda_kernels::entry_list own_list_;
  cuda_buffer<std::uint32_t> mine_, all_;
  cuda_buffer<float> sums_;
  marked_elements marked_;
  summed_values_t<Codec> values_{};
  device_value_sum<summed_values_t<Codec>> sum_;
};

/// @endcond

}  // namespace gradsieve
