// A communicator that is chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <gradsieve/concepts/communicator.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/host/space.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Stands for any communicator of a space, so that a compressor is compiled once for all transports. Collectives that
/// the transport lacks throw communication_error. On a device the transport works in stream order. Cost: a virtual call
/// per collective.
template <class Space>
class any_communicator_of {
 public:
  static constexpr bool stream_ordered = Space::stream_ordered;               ///< as what it stands for
  using bytes = std::span<std::byte const>;                                   ///< what is sent
  using buffer = std::span<std::byte>;                                        ///< what is received
  using room [[deprecated("gradsieve: any_communicator::buffer")]] = buffer;  ///< the old name
  using sizes = std::span<std::size_t const>;                                 ///< one a rank

  /// Implement it for your own transport that is known only at run time, as the C interface does. Memory is the
  /// space's.
  struct transport {
    virtual ~transport() = default;
    /// Throws unless any thread may call, one at a time; by default it does not throw.
    virtual void require_threads() const {}
    /// True for a staging_communicator; false by default.
    virtual bool is_staging() const { return false; }
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual void all_reduce(Space const&, std::span<float>, reduction) const = 0;
    virtual void all_reduce(Space const&, std::span<double>, reduction) const = 0;
    /// Sums, and maxima of less than 2^31: two_level and devices need it.
    virtual void all_reduce(Space const&, std::span<std::uint32_t>, reduction) const = 0;
    virtual void all_gather(Space const&, bytes, buffer) const = 0;
    virtual void all_gather(Space const&, bytes, buffer, sizes) const = 0;
    virtual void broadcast(Space const&, buffer, int) const = 0;
    virtual void send_receive(Space const&, bytes, int, buffer, int) const = 0;
    virtual void all_to_all(Space const&, bytes, sizes, buffer, sizes) const = 0;
  };

  /// Calls go to this transport. @throws invalid_argument for null
  explicit any_communicator_of(std::shared_ptr<transport const> how) : how_{std::move(how)} {
    if (!how_) throw invalid_argument("gradsieve: an any_communicator was given no transport: the pointer is null");
  }
  /// Copies share the transport. Moving copies, so a moved-from communicator can still be called.
  any_communicator_of(any_communicator_of const&) = default;
  /// As the constructor.
  any_communicator_of& operator=(any_communicator_of const&) = default;
  /// Calls go to a copy of this communicator.
  template <class Comm>
    requires(!std::is_same_v<Comm, any_communicator_of> && has_all_gather<Comm, Space>)
  explicit any_communicator_of(Comm const& comm) : how_{std::make_shared<over<Comm>>(comm)} {
    static_assert(!stream_ordered || stream_ordered_communicator<Comm>,
                  "this communicator does not work in stream order: hand it over as staged{comm}");
  }

  [[nodiscard]] int rank() const { return how_->rank(); }
  [[nodiscard]] int size() const { return how_->size(); }
  template <class T>
    requires(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::uint32_t>)
  void all_reduce(Space const& where, std::span<T> all, reduction how) const {
    how_->all_reduce(where, all, how);
  }
  void all_gather(Space const& where, bytes mine, buffer all) const { how_->all_gather(where, mine, all); }
  void all_gather(Space const& where, bytes mine, buffer all, sizes each) const {
    how_->all_gather(where, mine, all, each);
  }
  void broadcast(Space const& where, buffer in_out, int root) const { how_->broadcast(where, in_out, root); }
  void send_receive(Space const& where, bytes out, int to, buffer in, int from) const {
    how_->send_receive(where, out, to, in, from);
  }
  void all_to_all(Space const& where, bytes out, sizes out_sizes, buffer in, sizes in_sizes) const {
    how_->all_to_all(where, out, out_sizes, in, in_sizes);
  }
  /// True if it stands for a staging_communicator.
  [[nodiscard]] bool is_staging() const { return how_->is_staging(); }
  /// Throws unless any thread may call, as overlap requires. @throws communication_error as the transport's
  void require_threads() const { how_->require_threads(); }

 private:
  template <class Held>  // a communicator, or a reference to one
  struct over final : transport {
    using Comm = std::remove_cvref_t<Held>;
    explicit over(Comm const& to) : comm{to} {}
    [[nodiscard]] int rank() const override { return comm.rank(); }
    [[nodiscard]] int size() const override { return comm.size(); }
    void all_reduce(Space const& where, std::span<float> all, reduction how) const override {
      reduce(where, all, how);
    }
    void all_reduce(Space const& where, std::span<double> all, reduction how) const override {
      reduce(where, all, how);
    }
    void all_reduce(Space const& where, std::span<std::uint32_t> all, reduction how) const override {
      reduce(where, all, how);
    }
    void all_gather(Space const& where, bytes mine, buffer all) const override { comm.all_gather(where, mine, all); }
    void all_gather(Space const& where, bytes mine, buffer all, sizes each) const override {
      comm.all_gather(where, mine, all, each);
    }
    void broadcast(Space const& where, buffer in_out, int root) const override {
      call<has_broadcast<Comm, Space>>("broadcast", [&](auto const& by) { by.broadcast(where, in_out, root); });
    }
    void send_receive(Space const& where, bytes out, int to, buffer in, int from) const override {
      call<has_send_receive<Comm, Space>>("send_receive",
                                          [&](auto const& by) { by.send_receive(where, out, to, in, from); });
    }
    void all_to_all(Space const& where, bytes out, sizes out_sizes, buffer in, sizes in_sizes) const override {
      call<has_all_to_all<Comm, Space>>("all_to_all",
                                        [&](auto const& by) { by.all_to_all(where, out, out_sizes, in, in_sizes); });
    }
    void require_threads() const override {
      if constexpr (thread_checking_communicator<Comm>) comm.require_threads();
    }
    [[nodiscard]] bool is_staging() const override { return staging_communicator<Comm>; }

    template <class T>
    void reduce(Space const& where, std::span<T> all, reduction how) const {
      call<has_all_reduce<Comm, Space, T>>("all_reduce of this type",
                                           [&](auto const& by) { by.all_reduce(where, all, how); });
    }
    template <bool has>
    void call(char const* what, [[maybe_unused]] auto const& how) const {
      if constexpr (has)
        how(comm);
      else
        throw communication_error(std::string{"gradsieve: this communicator has no "} + what);
    }
    Held comm;
  };

 public:
  /// A communicator that calls go to while this lives, without a copy or an allocation.
  template <class Comm>
  class borrowed {
   public:
    /// @pre the communicator outlives it
    explicit borrowed(Comm const& comm) noexcept : of_{comm} {}
    borrowed(borrowed const&) = delete;
    /// The communicator. @pre used while this lives
    [[nodiscard]] any_communicator_of any() const {
      return any_communicator_of{std::shared_ptr<transport const>{std::shared_ptr<void>{}, &of_}};
    }

   private:
    over<Comm const&> of_;
  };

 private:
  std::shared_ptr<transport const> how_;
};

/// On the host.
using any_communicator = any_communicator_of<host>;
static_assert(has_all_gather<any_communicator, host> && has_broadcast<any_communicator, host>);

}  // namespace gradsieve
