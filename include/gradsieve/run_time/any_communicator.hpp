// A communicator that is chosen at run time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <gradsieve/gradsieve.hpp>

namespace gradsieve {

/// Stands for any communicator of the host, so that a compressor is compiled once for all transports. Collectives that
/// the transport lacks throw communication_error. Cost: a virtual call per collective.
class any_communicator {
 public:
  using bytes = std::span<std::byte const>;    ///< what is sent
  using room = std::span<std::byte>;           ///< what is received
  using sizes = std::span<std::size_t const>;  ///< one a rank

  /// Implement it for a transport of one's own that is known at run time only, as the C interface does.
  struct transport {
    virtual ~transport() = default;
    /// Throws unless any thread may call, one at a time; by default it does not.
    virtual void require_threads() const {}
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual void all_reduce(std::span<float>, reduction) const = 0;
    virtual void all_reduce(std::span<double>, reduction) const = 0;
    virtual void all_gather(bytes, room) const = 0;
    virtual void all_gather(bytes, room, sizes) const = 0;
    virtual void broadcast(room, int) const = 0;
    virtual void send_receive(bytes, int, room, int) const = 0;
    virtual void all_to_all(bytes, sizes, room, sizes) const = 0;
  };

  /// Calls go to this transport.
  explicit any_communicator(std::shared_ptr<transport const> how) : how_{std::move(how)} {}
  /// Calls go to a copy of this communicator.
  template <class Comm>
    requires(!std::is_same_v<Comm, any_communicator> && has_all_gather<Comm, host>)
  explicit any_communicator(Comm const& comm) : how_{std::make_shared<over<Comm>>(comm)} {}

  [[nodiscard]] int rank() const { return how_->rank(); }
  [[nodiscard]] int size() const { return how_->size(); }
  template <class T>
  void all_reduce(host const&, std::span<T> all, reduction how) const {
    how_->all_reduce(all, how);
  }
  void all_gather(host const&, bytes mine, room all) const { how_->all_gather(mine, all); }
  void all_gather(host const&, bytes mine, room all, sizes each) const { how_->all_gather(mine, all, each); }
  void broadcast(host const&, room in_out, int root) const { how_->broadcast(in_out, root); }
  void send_receive(host const&, bytes out, int to, room in, int from) const { how_->send_receive(out, to, in, from); }
  void all_to_all(host const&, bytes out, sizes out_sizes, room in, sizes in_sizes) const {
    how_->all_to_all(out, out_sizes, in, in_sizes);
  }
  /// Whether any thread may call, as overlap asks. @throws communication_error as the transport's
  void require_threads() const { how_->require_threads(); }

 private:
  template <class Comm>
  struct over final : transport {
    explicit over(Comm const& to) : comm{to} {}
    [[nodiscard]] int rank() const override { return comm.rank(); }
    [[nodiscard]] int size() const override { return comm.size(); }
    void all_reduce(std::span<float> all, reduction how) const override { comm.all_reduce(host{}, all, how); }
    void all_reduce(std::span<double> all, reduction how) const override { comm.all_reduce(host{}, all, how); }
    void all_gather(bytes mine, room all) const override { comm.all_gather(host{}, mine, all); }
    void all_gather(bytes mine, room all, sizes each) const override { comm.all_gather(host{}, mine, all, each); }
    void broadcast([[maybe_unused]] room in_out, [[maybe_unused]] int root) const override {
      if constexpr (has_broadcast<Comm, host>)
        comm.broadcast(host{}, in_out, root);
      else
        throw communication_error("gradsieve: this communicator has no broadcast");
    }
    void send_receive([[maybe_unused]] bytes out, [[maybe_unused]] int to, [[maybe_unused]] room in,
                      [[maybe_unused]] int from) const override {
      if constexpr (has_send_receive<Comm, host>)
        comm.send_receive(host{}, out, to, in, from);
      else
        throw communication_error("gradsieve: this communicator has no send_receive");
    }
    void all_to_all([[maybe_unused]] bytes out, [[maybe_unused]] sizes out_sizes, [[maybe_unused]] room in,
                    [[maybe_unused]] sizes in_sizes) const override {
      if constexpr (has_all_to_all<Comm, host>)
        comm.all_to_all(host{}, out, out_sizes, in, in_sizes);
      else
        throw communication_error("gradsieve: this communicator has no all_to_all");
    }
    void require_threads() const override {
      if constexpr (thread_checking_communicator<Comm>) comm.require_threads();
    }
    Comm comm;
  };

  std::shared_ptr<transport const> how_;
};
static_assert(has_all_gather<any_communicator, host> && has_broadcast<any_communicator, host>);

}  // namespace gradsieve
