// Sends a few bytes of host memory over a device's communicator.
#pragma once

#include <cstddef>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/host/space.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A device's communicator for host memory: copies through device memory, and waits. For setup only. A broadcast, or a
/// call with more bytes than `buffer`, allocates. Ranks: as the communicator's. @throws what that throws; device_error.
template <communicator Comm>
class through_device {
 public:
  /// `buffer`: device memory that all_gather() uses instead of allocating.
  through_device(device const& where, Comm const& comm, std::span<std::byte> buffer = {})
      : where_{where}, comm_{comm}, buffer_{buffer} {}

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }

  void broadcast(host const&, std::span<std::byte> in_out, int root) const
    requires has_broadcast<Comm, device>
  {
    cuda_buffer<std::byte> const there{where_, in_out.size()};
    where_.wait_for([&] {
      if (root == rank()) where_.copy(in_out, there.span());
      comm_.broadcast(where_, there.span(), root);
      where_.copy(there.span(), in_out);
    });
  }

  void all_gather(host const&, std::span<std::byte const> mine, std::span<std::byte> all) const
    requires has_all_gather<Comm, device>
  {
    gather(mine, all, [&](auto from, auto to) { comm_.all_gather(where_, from, to); });
  }
  void all_gather(host const&, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const
    requires has_all_gather<Comm, device>
  {
    gather(mine, all, [&](auto from, auto to) { comm_.all_gather(where_, from, to, sizes); });
  }

 private:
  template <class Call>
  void gather(std::span<std::byte const> mine, std::span<std::byte> all, Call const& call) const {
    std::size_t const first = (mine.size() + 255) / 256 * 256;
    bool const fits = first + all.size() <= buffer_.size();
    cuda_buffer<std::byte> const own{where_, fits ? 0 : first + all.size()};
    auto const there = fits ? buffer_ : own.span();
    auto const from = there.first(mine.size());
    auto const to = there.subspan(first, all.size());
    where_.wait_for([&] {
      where_.copy(mine, from);
      call(std::span<std::byte const>{from}, to);
      where_.copy(to, all);
    });
  }

  device where_;
  Comm comm_;
  std::span<std::byte> buffer_;
};

}  // namespace gradsieve
