// The message of a device's own entries, for a transport of the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/codec/byte_breakdown.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Its memory, as large as a message may be.
class device_outgoing {
 public:
  /// Writes a message of at most `most` bytes. The first use allocates and waits.
  template <class Codec>
  [[nodiscard]] std::span<std::byte const> encode(cuda_workspace const& work, device_codec<Codec> const& codec,
                                                  std::uint64_t most, message_info const& info,
                                                  cuda_kernels::entry_list const& entries, float const* passthrough) {
    auto const bytes = (most + 7) / 8 * 8;
    if (bytes_.size() < bytes) {
      work.where().synchronize();  // an earlier message may still be written
      bytes_ = work.template zeroed<std::byte>(bytes);
      state_ = work.template zeroed<cuda_kernels::message_state>(1);
    }
    encode_message(work, codec, info, entries, passthrough, {bytes_.data(), bytes, state_.data()});
    return bytes_.first(bytes);
  }

  [[nodiscard]] cuda_kernels::message_state* state() const noexcept { return state_.data(); }

 private:
  cuda_buffer<std::byte> bytes_;
  cuda_buffer<cuda_kernels::message_state> state_;
};

/// Where the bytes of a message of this rank's own went; it is in memory of the host.
template <class Recipe>
[[nodiscard]] byte_breakdown own_breakdown(Recipe const& recipe, message_info info, std::uint64_t capacity,
                                           std::span<range const> passed, std::span<std::byte const> message) {
  info.passthrough =
      wire::load_one<std::uint64_t>(message.subspan(message_header::passthrough_at));  // none in an exchange
  auto const count = wire::load_one<std::uint64_t>(message.subspan(message_header::count_at));
  wire::check_count(count, capacity);
  std::vector<index_type> indices(count);
  std::vector<float> values(indices.size());
  std::vector<float> through(info.passthrough);
  auto const found = recipe.codec.decode(info, message, {indices, values, through});
  return byte_breakdown_of(recipe.selector, recipe.codec, info, found, passed, message);
}

}  // namespace gradsieve::detail
