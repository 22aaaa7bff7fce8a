// Decoded messages of several senders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/concepts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// Upper bound on the entries of a message of `size` bytes: from the codec's most_entries(front, size), if it has one,
/// and from the number of selectable elements. `front`: its beginning, at least a header. Cost: O(1).
template <class Codec>
[[nodiscard]] std::uint64_t most_entries(Codec const& how, message_info const& info, std::span<std::byte const> front,
                                         std::uint64_t size) noexcept {
  if constexpr (bounded_codec<Codec>)
    return smaller(info.n - info.passthrough, how.most_entries(front, size));
  else
    return info.n - info.passthrough;
}

}  // namespace detail

/// Decoded messages, in the order in which they were added. Owns their memory, except that of views: see add_all().
template <class Workspace>
class decoded_messages {
 public:
  /// Removes all messages and reserves memory for `senders` messages with at most `entries` entries and `passthrough`
  /// uncompressed elements together; allocates 1.5 times the entries if that is more than in any earlier call. @throws
  /// std::bad_alloc; the object is then empty.
  void reserve(std::size_t senders, std::uint64_t entries, std::uint64_t passthrough) {
    clear();
    messages_.reserve(senders);
    starts_.reserve(senders + 1);
    errors_.reserve(senders);
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

  /// Removes all messages and keeps the memory.
  void clear() noexcept {
    messages_.clear();
    used_ = used_passthrough_ = 0;
  }

  /// Decodes a message of at most `entries` entries, whose indices count from element `first`. @pre reserve() was
  /// called for these entries @throws as decode_checked().
  template <class Codec>
  void add(Codec const& how, message_info const& info, std::span<std::byte const> bytes, std::uint64_t entries,
           index_type first = 0) {
    messages_.push_back(
        detail::decode_checked(how, info, bytes,
                               {indices_.span().subspan(used_, entries), values_.span().subspan(used_, entries),
                                passthrough_.span().subspan(used_passthrough_, info.passthrough)}));
    if (first > 0)
      for (auto& index : indices_.span().subspan(used_, messages_.back().indices.size())) index += first;
    used_ += messages_.back().indices.size();
    used_passthrough_ += info.passthrough;
  }

  /// Decodes messages on the workspace's threads, with concurrent calls of the codec's decode(). Message m has at most
  /// most(m) entries. `views`: the results may be views of the messages, which stay unchanged until clear(); else
  /// `size` may be given: the indices of message m then count from element m * size, and are below `all` afterwards.
  /// @pre reserve() was called for all of them @throws as decode_checked() for the first message that throws; the
  /// object is then empty.
  template <class Codec, class Most>
  void add_all(Workspace& work, Codec const& how, message_info const& info,
               std::span<std::span<std::byte const> const> messages, Most const& most, bool views = false,
               std::uint64_t size = 0, std::uint64_t all = 0) {
    std::size_t const before = messages_.size();
    starts_.assign(1, used_);
    for (std::size_t m = 0; m < messages.size(); ++m) starts_.push_back(starts_.back() + most(m));
    messages_.resize(before + messages.size());
    errors_.assign(messages.size(), nullptr);
    work.run_each(starts_.back() - used_, messages.size(), [&](std::size_t m) {
      std::uint64_t const entries = starts_[m + 1] - starts_[m];
      try {
        if constexpr (checks_decoded<Codec> && requires { how.view(info, messages[m], entries)->passthrough; }) {
          if (auto const seen = views ? how.view(info, messages[m], entries) : std::nullopt) {
            messages_[before + m] = *seen;
            return;
          }
        }
        messages_[before + m] = detail::decode_checked(
            how, info, messages[m],
            {indices_.span().subspan(starts_[m], entries), values_.span().subspan(starts_[m], entries),
             passthrough_.span().subspan(used_passthrough_ + m * info.passthrough, info.passthrough)});
        if (size == 0) return;
        if (auto const& found = messages_[before + m].indices; !found.empty())
          wire::expect(m * size + found.back() < all, "index", m * size + found.back(), "below ", all);
        for (auto& index : indices_.span().subspan(starts_[m], messages_[before + m].indices.size()))
          index += static_cast<index_type>(m * size);
      } catch (...) {
        errors_[m] = std::current_exception();
      }
    });
    used_ = starts_.back();
    used_passthrough_ += messages.size() * info.passthrough;
    for (auto& each : errors_) {
      if (!each) continue;
      auto const error = std::exchange(each, nullptr);
      errors_.clear();
      clear();
      std::rethrow_exception(error);
    }
  }

  /// The decoded messages; valid until clear() or reserve().
  [[nodiscard]] std::span<selection_view const> messages() const noexcept { return messages_; }

 private:
  std::vector<selection_view> messages_;
  std::vector<std::uint64_t> starts_;       // of add_all(): begin of each message's entries, and the end
  std::vector<std::exception_ptr> errors_;  // of each message
  typename Workspace::template buffer<index_type> indices_;
  typename Workspace::template buffer<float> values_, passthrough_;
  std::uint64_t used_ = 0;
  std::uint64_t used_passthrough_ = 0;
};

}  // namespace gradsieve
