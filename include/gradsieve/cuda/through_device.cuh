// A few bytes of host memory over a device's communicator.
#pragma once

#include <cstddef>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/space/cuda_device.cuh>
#include <gradsieve/space/host.hpp>

namespace gradsieve {

/// A device's communicator as one for host memory: through device memory, and the host waits. For what ranks agree on
/// at first, not for steps. Allocates in every call. ranks: as of the communicator. @throws what that throws;
/// device_error.
template <communicator Comm>
class through_device {
 public:
  through_device(device const& where, Comm const& comm) : where_{where}, comm_{comm} {}

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }

  void broadcast(host const&, std::span<std::byte> in_out, int root) const
    requires has_broadcast<Comm, device>
  {
    cuda_buffer<std::byte> const there{where_, in_out.size()};
    if (root == rank()) where_.copy(in_out, there.span());
    comm_.broadcast(where_, there.span(), root);
    where_.copy(there.span(), in_out);
    where_.synchronize();
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
    cuda_buffer<std::byte> const from{where_, mine.size()};
    cuda_buffer<std::byte> const to{where_, all.size()};
    where_.copy(mine, from.span());
    call(std::span<std::byte const>{from.span()}, to.span());
    where_.copy(to.span(), all);
    where_.synchronize();
  }

  device where_;
  Comm comm_;
};

}  // namespace gradsieve
