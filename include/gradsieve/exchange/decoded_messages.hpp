// Messages of several senders, decoded side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>

namespace gradsieve {

/// Entries that a message of `size` bytes, which may be any, can have at most: what the codec's most_entries(front,
/// size) says, `front` being a header's length of it or more; never more than elements that do not pass through. Cost:
/// O(1).
template <class Codec>
[[nodiscard]] std::uint64_t most_entries(Codec const& how, message_info const& info, std::span<std::byte const> front,
                                         std::uint64_t size) noexcept {
  if constexpr (bounded_codec<Codec>)
    return smaller(info.n - info.passthrough, how.most_entries(front, size));
  else
    return info.n - info.passthrough;
}

/// Room for decoded messages and the views of them, in the order of arrival, back to back.
template <class Workspace>
class decoded_messages {
 public:
  /// Empties it and makes room for `senders` messages that together have at most `entries` entries and `passthrough`
  /// uncompressed elements. Allocates where that is more than ever before, for half as many entries again: messages of
  /// one kind vary in length. @throws std::bad_alloc; it is empty then.
  void reserve(std::size_t senders, std::uint64_t entries, std::uint64_t passthrough) {
    clear();
    messages_.reserve(senders);
    if (indices_.size() < entries || values_.size() < entries) {
      indices_ = {};
      indices_ = typename Workspace::template buffer<index_type>(entries + entries / 2);
      values_ = {};
      values_ = typename Workspace::template buffer<float>(entries + entries / 2);
    }
    if (passthrough_.size() < passthrough) {
      passthrough_ = {};
      passthrough_ = typename Workspace::template buffer<float>(passthrough);
    }
  }

  void clear() noexcept {
    messages_.clear();
    used_ = used_passthrough_ = 0;
  }

  /// Decodes a message with at most `entries` entries, whose indices count from element `first`. @pre reserve() made
  /// room
  /// @throws what the codec's decode() throws.
  template <class Codec>
  void add(Codec const& how, message_info const& info, std::span<std::byte const> bytes, std::uint64_t entries,
           index_type first = 0) {
    messages_.push_back(how.decode(info, bytes,
                                   {indices_.span().subspan(used_, entries), values_.span().subspan(used_, entries),
                                    passthrough_.span().subspan(used_passthrough_, info.passthrough)}));
    if (first > 0)
      for (auto& index : indices_.span().subspan(used_, messages_.back().indices.size())) index += first;
    used_ += messages_.back().indices.size();
    used_passthrough_ += info.passthrough;
  }

  [[nodiscard]] std::span<selection_view const> messages() const noexcept { return messages_; }

 private:
  std::vector<selection_view> messages_;
  typename Workspace::template buffer<index_type> indices_;
  typename Workspace::template buffer<float> values_, passthrough_;
  std::uint64_t used_ = 0;
  std::uint64_t used_passthrough_ = 0;
};

}  // namespace gradsieve
