// Host transports for device memory: through pinned memory, or directly if the transport can read device memory.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include <gradsieve/concepts.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/host/space.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A host communicator (MPI, threads, your own) for a device. A call copies to pinned host memory, synchronises the
/// stream, runs the communicator there, and copies the result back in stream order without waiting for it.
/// Cost: a copy to the host of what the rank sends, and back of what it receives. The host waits once per call, so a
/// step with it cannot be captured in a CUDA graph.
/// Memory: pinned, shared by copies: the longest buffer of a call; for send_receive, all_to_all and reduce_scatter both
/// buffers. Allocated by reserve(), or by the first call that needs more, which then takes milliseconds.
/// Ranks: as the communicator's. Threads: one call at a time for all copies.
/// @throws what the communicator throws, with device memory unchanged; device_error.
template <communicator Comm>
class staged {
 public:
  static constexpr bool stream_ordered = true;
  static constexpr bool stages = true;

  /// For this communicator, with pinned memory for `bytes`; see reserve(). Ranks: local.
  explicit staged(Comm inner, std::size_t bytes = 0)
      : inner_{std::move(inner)}, pinned_{std::make_shared<pinned_buffer>()} {
    reserve(bytes);
  }
  /// Copies share the pinned memory. Moving copies, so a moved-from communicator can still be called.
  staged(staged const&) = default;
  staged& operator=(staged const&) = default;  ///< shares the other's pinned memory

  [[nodiscard]] int rank() const { return inner_.rank(); }
  [[nodiscard]] int size() const { return inner_.size(); }

  /// Allocates pinned memory for calls whose buffers have up to `bytes`, so that none of them allocates. Waits for the
  /// last call's copy, so call it before training. Ranks: local. @throws device_error; the memory is unchanged.
  void reserve(std::size_t bytes) const { pinned_->reserve(bytes); }

  [[nodiscard]] std::size_t capacity() const noexcept { return pinned_->memory.size(); }  ///< bytes of pinned memory

  template <class T>
    requires has_all_reduce<Comm, host, T>
  void all_reduce(device const& where, std::span<T> in_out, reduction how) const {
    auto const bytes = std::as_writable_bytes(in_out);
    auto const pinned = pinned_->first(where, bytes.size());
    download(where, bytes, pinned);
    // Pinned memory is aligned for every T.
    inner_.all_reduce(host{}, std::span<T>{reinterpret_cast<T*>(pinned.data()), in_out.size()}, how);
    upload(where, pinned, bytes);
  }

  template <class T>
    requires has_reduce_scatter<Comm, host, T>
  void reduce_scatter(device const& where, std::span<T const> all, std::span<T> mine, reduction how) const {
    auto const pinned = pinned_->first(where, all.size_bytes() + mine.size_bytes());
    auto const share = pinned.subspan(all.size_bytes());
    download(where, std::as_bytes(all), pinned);
    inner_.reduce_scatter(host{}, std::span<T const>{reinterpret_cast<T const*>(pinned.data()), all.size()},
                          std::span<T>{reinterpret_cast<T*>(share.data()), mine.size()}, how);
    upload(where, share, std::as_writable_bytes(mine));
  }

  void all_gather(device const& where, std::span<std::byte const> mine, std::span<std::byte> all) const
    requires has_all_gather<Comm, host>
  {
    gather(where, mine, all, static_cast<std::size_t>(rank()) * mine.size(),
           [&](std::span<std::byte const> place, std::span<std::byte> pinned) {
             inner_.all_gather(host{}, place, pinned);
           });
  }

  /// As has_all_gather; `sizes` are in host memory.
  void all_gather(device const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const
    requires has_all_gather<Comm, host>
  {
    auto const before = sizes.first(std::min(sizes.size(), static_cast<std::size_t>(rank())));
    gather(where, mine, all, std::accumulate(before.begin(), before.end(), std::size_t{0}),
           [&](std::span<std::byte const> place, std::span<std::byte> pinned) {
             inner_.all_gather(host{}, place, pinned, sizes);
           });
  }

  void broadcast(device const& where, std::span<std::byte> in_out, int root) const
    requires has_broadcast<Comm, host>
  {
    auto const pinned = pinned_->first(where, in_out.size());
    download(where, root == rank() ? in_out : in_out.first(0), pinned);
    inner_.broadcast(host{}, pinned, root);
    if (root != rank()) upload(where, pinned, in_out);
  }

  void send_receive(device const& where, std::span<std::byte const> out, int to, std::span<std::byte> in,
                    int from) const
    requires has_send_receive<Comm, host>
  {
    auto const pinned = pinned_->first(where, out.size() + in.size());
    auto const received = pinned.subspan(out.size());
    download(where, out, pinned);
    inner_.send_receive(host{}, std::span<std::byte const>{pinned.first(out.size())}, to, received, from);
    upload(where, received, in);
  }

  /// As has_all_to_all; sizes are in host memory.
  void all_to_all(device const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const
    requires has_all_to_all<Comm, host>
  {
    auto const pinned = pinned_->first(where, out.size() + in.size());
    auto const received = pinned.subspan(out.size());
    download(where, out, pinned);
    inner_.all_to_all(host{}, std::span<std::byte const>{pinned.first(out.size())}, out_sizes, received, in_sizes);
    upload(where, received, in);
  }

 private:
  /// Pinned memory, and the event of the last copy out of it, before which it is neither written nor freed.
  struct pinned_buffer {
    pinned_buffer() = default;
    pinned_buffer(pinned_buffer const&) = delete;
    pinned_buffer& operator=(pinned_buffer const&) = delete;
    ~pinned_buffer() {
      try {
        copied.synchronize();
      } catch (device_error const&) {  // the device is gone, and with it whatever read this
      }
    }

    void reserve(std::size_t bytes) {
      if (bytes <= memory.size()) return;
      copied.synchronize();
      memory = pinned_array<std::byte>{bytes};
    }

    /// @throws invalid_argument in a capture, as every call waits; device_error.
    [[nodiscard]] std::span<std::byte> first(device const& where, std::size_t bytes) {
      where.refuse_capture("it waits for the stream");
      reserve(bytes);
      return memory.span().first(bytes);
    }

    pinned_array<std::byte> memory;
    cuda_event copied;
  };

  /// Copies to `pinned` and waits, also for the last copy out of it.
  void download(device const& where, std::span<std::byte const> from, std::span<std::byte> pinned) const {
    pinned_->copied.synchronize();
    if (!from.empty()) where.wait_for([&] { where.copy(from, pinned.first(from.size())); });
  }

  void upload(device const& where, std::span<std::byte const> pinned, std::span<std::byte> to) const {
    where.copy(pinned, to);
    pinned_->copied.record(where);
  }

  /// Leaves sizes that do not fit to `call`. @throws what `call` throws
  template <class Call>
  void gather(device const& where, std::span<std::byte const> mine, std::span<std::byte> all, std::size_t offset,
              Call const& call) const {
    bool const fits = offset <= all.size() && mine.size() <= all.size() - offset;
    auto const pinned = pinned_->first(where, fits ? all.size() : all.size() + mine.size());
    auto const place = pinned.subspan(fits ? offset : all.size(), mine.size());
    download(where, mine, place);
    call(std::span<std::byte const>{place}, pinned.first(all.size()));
    upload(where, pinned.first(all.size()), all);
  }

  Comm inner_;
  std::shared_ptr<pinned_buffer> pinned_;
};

/// A communicator that takes device pointers but no stream, such as mpi::communicator_ref over a CUDA-aware MPI. A call
/// synchronises the stream, then runs the communicator on device memory. The library cannot detect whether an MPI is
/// CUDA-aware: Open MPI (in `<mpi-ext.h>`) and MPICH have MPIX_Query_cuda_support(), which returns 1 if the running
/// library is. Any other MPI reads device memory on the host, which ends the program: use `staged`.
/// Cost: the host waits once per call, so a step with it cannot be captured in a CUDA graph. Memory: none.
/// Ranks: as the communicator's. Threads: as the communicator's.
/// @pre results are in memory when the communicator's call returns; a share that is in its place in `all` stays there
/// @throws what the communicator throws; device_error.
template <communicator Comm>
class cuda_aware {
 public:
  static constexpr bool stream_ordered = true;
  static constexpr bool stages = false;

  /// For this communicator. Ranks: local.
  explicit cuda_aware(Comm inner) : inner_{std::move(inner)} {}

  [[nodiscard]] int rank() const { return inner_.rank(); }
  [[nodiscard]] int size() const { return inner_.size(); }

  template <class T>
    requires has_all_reduce<Comm, device, T>
  void all_reduce(device const& where, std::span<T> in_out, reduction how) const {
    where.synchronize();
    inner_.all_reduce(where, in_out, how);
  }

  template <class T>
    requires has_reduce_scatter<Comm, device, T>
  void reduce_scatter(device const& where, std::span<T const> all, std::span<T> mine, reduction how) const {
    where.synchronize();
    inner_.reduce_scatter(where, all, mine, how);
  }

  void all_gather(device const& where, std::span<std::byte const> mine, std::span<std::byte> all) const
    requires has_all_gather<Comm, device>
  {
    inner_.all_gather(where, placed(where, mine, all, static_cast<std::size_t>(rank()) * mine.size()), all);
  }

  void all_gather(device const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const
    requires has_all_gather<Comm, device>
  {
    auto const before = sizes.first(std::min(sizes.size(), static_cast<std::size_t>(rank())));
    auto const offset = std::accumulate(before.begin(), before.end(), std::size_t{0});
    inner_.all_gather(where, placed(where, mine, all, offset), all, sizes);
  }

  void broadcast(device const& where, std::span<std::byte> in_out, int root) const
    requires has_broadcast<Comm, device>
  {
    where.synchronize();
    inner_.broadcast(where, in_out, root);
  }

  void send_receive(device const& where, std::span<std::byte const> out, int to, std::span<std::byte> in,
                    int from) const
    requires has_send_receive<Comm, device>
  {
    where.synchronize();
    inner_.send_receive(where, out, to, in, from);
  }

  void all_to_all(device const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const
    requires has_all_to_all<Comm, device>
  {
    where.synchronize();
    inner_.all_to_all(where, out, out_sizes, in, in_sizes);
  }

 private:
  /// Copies `mine` to its place in `all`, and waits. The communicator refuses sizes that do not fit.
  static std::span<std::byte const> placed(device const& where, std::span<std::byte const> mine,
                                           std::span<std::byte> all, std::size_t offset) {
    where.wait_for([&] {
      if (offset > all.size() || mine.size() > all.size() - offset) return;
      auto const place = all.subspan(offset, mine.size());
      where.copy(mine, place);
      mine = place;
    });
    return mine;
  }

  Comm inner_;
};

}  // namespace gradsieve
