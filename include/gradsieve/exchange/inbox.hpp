// Messages of several senders, decoded side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/concepts.hpp>

namespace gradsieve {

/// Room for decoded messages and the views of them, in the order of arrival.
template <class Workspace>
class inbox {
 public:
  /// Room for `senders` messages of at most `capacity` entries and `dense` uncompressed elements. Allocates.
  void reserve(std::size_t senders, std::uint64_t capacity, std::uint64_t dense) {
    capacity_ = capacity;
    dense_ = dense;
    indices_ = typename Workspace::template buffer<index_type>(capacity * senders);
    values_ = typename Workspace::template buffer<float>(capacity * senders);
    dense_values_ = typename Workspace::template buffer<float>(dense * senders);
    messages_.assign(senders, {});
    count_ = 0;
  }

  [[nodiscard]] std::size_t senders() const noexcept { return messages_.size(); }

  void clear() noexcept { count_ = 0; }

  /// @pre fewer than senders() messages since clear(). @throws what the codec's decode() throws.
  template <class Codec>
  void add(Codec const& how, message_info const info, std::span<std::byte const> bytes) {
    messages_[count_] = how.decode(
        info, bytes,
        {indices_.span().subspan(count_ * capacity_, capacity_), values_.span().subspan(count_ * capacity_, capacity_),
         dense_values_.span().subspan(count_ * dense_, dense_)});
    ++count_;
  }

  [[nodiscard]] std::span<selection_view const> messages() const noexcept { return std::span{messages_}.first(count_); }

 private:
  std::vector<selection_view> messages_;
  typename Workspace::template buffer<index_type> indices_;
  typename Workspace::template buffer<float> values_, dense_values_;
  std::uint64_t capacity_ = 0;
  std::uint64_t dense_ = 0;
  std::size_t count_ = 0;
};

}  // namespace gradsieve
