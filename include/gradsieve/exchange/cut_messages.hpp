// A selection as one message for each shard, which the ranks exchange.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/exchange/decoded_messages.hpp>
#include <gradsieve/exchange/round.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Each rank owns a run of consecutive elements and receives the entries that other ranks selected from it, as a
/// message about these elements only: indices count from the run's first element. An empty selection has no bytes.
template <class Workspace>
class cut_messages {
 public:
  /// Allocates buffers for `world` messages in each direction, of at most `bytes` bytes and `entries` entries, and for
  /// `capacity` entries that this rank selects.
  void reserve(int world, std::uint64_t bytes, std::uint64_t entries, std::uint64_t capacity) {
    auto const ranks = static_cast<std::size_t>(world);
    message_ = (bytes + 7) / 8 * 8;
    entries_ = entries;
    outgoing_ = typename Workspace::template buffer<std::byte>(message_ * ranks);
    incoming_ = typename Workspace::template buffer<std::byte>(message_ * ranks);
    places_ = typename Workspace::template buffer<index_type>(capacity);
    values_ = typename Workspace::template buffer<float>(capacity);
    decoded_.reserve(ranks, entries * ranks, 0);
    out_words_.resize(ranks);
    in_words_.resize(ranks);
    out_sizes_.resize(ranks);
    in_sizes_.resize(ranks);
    words_.assign(ranks, sizeof(std::uint64_t));
  }

  /// The most bytes that all messages of a rank can have together.
  [[nodiscard]] std::uint64_t capacity() const noexcept { return outgoing_.size(); }

  /// This rank's values, after copy(); write() rounds them to what the messages hold.
  [[nodiscard]] std::span<float> copy(std::span<float const> values) noexcept {
    std::ranges::copy(values, values_.span().begin());
    return values_.first(values.size());
  }

  /// Writes the messages of a selection: run r, described by infos[r], has the elements [borders[r], borders[r + 1]);
  /// `sender` has this rank's number and step. `values` become what the receivers will decode. Returns the bytes of all
  /// messages. @throws exceptions of the codec; corrupt_message if it makes a value that is not finite.
  template <class Codec>
  std::uint64_t write(Codec const& how, message_info const& sender, std::span<message_info const> infos,
                      std::span<std::uint64_t const> borders, std::span<index_type const> indices,
                      std::span<float> values) {
    std::size_t first = 0;
    std::size_t at = 0;
    for (std::size_t r = 0; r < infos.size(); ++r) {
      auto const end =
          std::lower_bound(indices.begin() + static_cast<std::ptrdiff_t>(first), indices.end(), borders[r + 1]) -
          indices.begin();
      std::size_t const count = static_cast<std::size_t>(end) - first;
      auto const places = places_.span().subspan(first, count);
      auto const here = values.subspan(first, count);
      for (std::size_t i = 0; i < count; ++i) places[i] = static_cast<index_type>(indices[first + i] - borders[r]);
      auto info = infos[r];
      info.step = sender.step;
      info.rank = sender.rank;
      if constexpr (quantises<Codec>) {
        how.quantise(info, places, here);
        wire::check_finite(here);
      }
      out_sizes_[r] =
          count == 0
              ? 0
              : static_cast<std::size_t>(encode_checked(how, info, {places, here, {}}, outgoing_.span().subspan(at)));
      at += out_sizes_[r];
      first += count;
    }
    return at;
  }

  /// Sends what write() wrote, receives the others' messages, counts bytes. Collective. @throws mismatch, on this rank,
  /// if a rank announces a message that is too large.
  template <class Comm, class Space>
  void exchange(Comm const& comm, Space const& where, exchange_result& result) {
    auto const me = static_cast<std::size_t>(comm.rank());
    for (std::size_t r = 0; r < out_sizes_.size(); ++r) out_words_[r] = out_sizes_[r];
    comm.all_to_all(where, std::as_bytes(std::span{std::as_const(out_words_)}), std::span{std::as_const(words_)},
                    std::as_writable_bytes(std::span{in_words_}), std::span{std::as_const(words_)});
    std::size_t given = 0;
    std::size_t got = 0;
    for (std::size_t r = 0; r < in_sizes_.size(); ++r) {
      if (in_words_[r] > message_)
        throw mismatch("gradsieve: rank " + std::to_string(r) + " announces a size of " + std::to_string(in_words_[r]) +
                       ", there is room for " + std::to_string(message_));
      in_sizes_[r] = in_words_[r];
      given += out_sizes_[r];
      got += in_sizes_[r];
    }
    comm.all_to_all(where, std::span<std::byte const>{outgoing_.first(given)}, std::span{std::as_const(out_sizes_)},
                    incoming_.first(got), std::span{std::as_const(in_sizes_)});
    std::uint64_t const sizes = sizeof(std::uint64_t) * (in_sizes_.size() - 1);
    result.bytes_sent = sizes + given - out_sizes_[me];
    result.bytes_received = sizes + got - in_sizes_[me];
  }

  /// The received messages, decoded in rank order, with indices of the whole gradient. `info` is this rank's run, which
  /// begins with element `first`. @throws exceptions of the codec's decode(); nothing is decoded then.
  template <class Codec>
  std::span<selection_view const> read(Codec const& how, message_info const& info, std::uint64_t first) {
    decoded_.clear();
    std::size_t at = 0;
    for (auto const size : in_sizes_) {
      if (size > 0)
        decoded_.add(how, info, incoming_.span().subspan(at, size), smaller(entries_, info.n),
                     static_cast<index_type>(first));
      at += size;
    }
    return decoded_.messages();
  }

 private:
  std::uint64_t message_ = 0;  // bytes of one at most
  std::uint64_t entries_ = 0;
  typename Workspace::template buffer<std::byte> outgoing_, incoming_;
  typename Workspace::template buffer<index_type> places_;
  typename Workspace::template buffer<float> values_;
  decoded_messages<Workspace> decoded_;
  std::vector<std::uint64_t> out_words_, in_words_;
  std::vector<std::size_t> out_sizes_, in_sizes_, words_;
};

}  // namespace gradsieve::detail
