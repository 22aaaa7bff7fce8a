// Lets the conformance suite of communicators, which works on host memory, test one that works on device memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <gradsieve/concepts.hpp>
#include <gradsieve/cuda/device.cuh>

#include "comm_conformance.hpp"

/// Every call runs on copies of its spans: device memory, or, with `Pinned`, host memory that the device reaches too.
template <class Comm, bool Pinned = false>
class on_device {
 public:
  using anywhere = comm_conformance::anywhere;

  on_device(Comm comm, gradsieve::device where) : comm_{std::move(comm)}, where_{where} {}

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }

  template <class T>
    requires gradsieve::has_all_reduce<Comm, gradsieve::device, T>
  void all_reduce(anywhere, std::span<T> in_out, gradsieve::reduction how) const {
    copy const there{where_, std::as_writable_bytes(in_out)};
    comm_.all_reduce(where_, std::span<T>{reinterpret_cast<T*>(there.bytes().data()), in_out.size()}, how);
    there.bring_back(std::as_writable_bytes(in_out));
  }

  template <class T>
    requires gradsieve::has_reduce_scatter<Comm, gradsieve::device, T>
  void reduce_scatter(anywhere, std::span<T const> all, std::span<T> mine, gradsieve::reduction how) const {
    copy const given{where_, std::as_bytes(all)};
    copy const taken{where_, std::as_bytes(std::span<T const>{mine})};
    comm_.reduce_scatter(where_, std::span<T const>{reinterpret_cast<T const*>(given.bytes().data()), all.size()},
                         std::span<T>{reinterpret_cast<T*>(taken.bytes().data()), mine.size()}, how);
    taken.bring_back(std::as_writable_bytes(mine));
  }

  void all_gather(anywhere, std::span<std::byte const> mine, std::span<std::byte> all) const {
    gather(mine, all, [&](auto share, auto everything) { comm_.all_gather(where_, share, everything); });
  }

  void all_gather(anywhere, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    gather(mine, all, [&](auto share, auto everything) { comm_.all_gather(where_, share, everything, sizes); });
  }

  void broadcast(anywhere, std::span<std::byte> in_out, int root) const {
    copy const there{where_, in_out};
    comm_.broadcast(where_, there.bytes(), root);
    there.bring_back(in_out);
  }

  void send_receive(anywhere, std::span<std::byte const> out, int to, std::span<std::byte> in, int from) const {
    copy const sent{where_, out};
    copy const received{where_, in};
    comm_.send_receive(where_, std::span<std::byte const>{sent.bytes()}, to, received.bytes(), from);
    received.bring_back(in);
  }

  void all_to_all(anywhere, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    copy const sent{where_, out};
    copy const received{where_, in};
    comm_.all_to_all(where_, std::span<std::byte const>{sent.bytes()}, out_sizes, received.bytes(), in_sizes);
    received.bring_back(in);
  }

 private:
  using memory = std::conditional_t<Pinned, gradsieve::pinned_array<std::byte>, gradsieve::cuda_buffer<std::byte>>;

  /// Bytes where the communicator works. They are put there, and later fetched, in stream order alone.
  class copy {
   public:
    copy(gradsieve::device const& where, std::span<std::byte const> bytes)
        : where_{where}, memory_{allocate(bytes.size())}, source_{bytes.size()} {
      if (!bytes.empty()) std::memcpy(source_.data(), bytes.data(), bytes.size());
      where_.copy(source_.span(), memory_.span());
    }

    [[nodiscard]] std::span<std::byte> bytes() const { return memory_.span(); }

    void bring_back(std::span<std::byte> to) const {
      where_.copy(memory_.span(), source_.span());
      where_.synchronize();
      if (!to.empty()) std::memcpy(to.data(), source_.data(), to.size());
    }

   private:
    [[nodiscard]] memory allocate(std::size_t size) const {
      if constexpr (Pinned)
        return memory{size};
      else
        return memory{where_, size};
    }

    gradsieve::device where_;
    memory memory_;
    gradsieve::pinned_array<std::byte> source_;
  };

  /// `mine` may be a part of `all`: then it is the same part there.
  template <class Call>
  void gather(std::span<std::byte const> mine, std::span<std::byte> all, Call const& call) const {
    copy const everything{where_, all};
    copy const outside{where_, mine};
    bool const in_place = !all.empty() && mine.data() >= all.data() && mine.data() <= all.data() + all.size();
    auto const share =
        in_place ? everything.bytes().subspan(static_cast<std::size_t>(mine.data() - all.data())) : outside.bytes();
    call(std::span<std::byte const>{share.first(mine.size())}, everything.bytes());
    everything.bring_back(all);
  }

  Comm comm_;
  gradsieve::device where_;
};
