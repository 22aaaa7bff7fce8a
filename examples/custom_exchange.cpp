// An exchange of your own: it carries what each rank has selected to all ranks.
#include <gradsieve/codec/packed.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <vector>

namespace gs = gradsieve;

//! [exchange]
/// Every rank broadcasts its message, one after the other: what `gather` does, for transports whose broadcast is their
/// best collective.
struct in_turn {
  static constexpr char const* name = "in_turn";
  static constexpr gs::exchange_traits traits{.encodes = true, .broadcast = true};  // see exchange_traits

  template <class Workspace>
  class buffers {
   public:
    /// Room for a world and for `capacity` entries a rank.
    template <class Codec>
    void reserve(Workspace& work, Codec const& codec, gs::message_info const info, int world, std::uint64_t capacity,
                 bool) {
      auto const ranks = static_cast<std::size_t>(world);
      mine_ = typename Workspace::template buffer<std::byte>(codec.max_bytes(info.n, capacity, 0));
      theirs_ = typename Workspace::template buffer<std::byte>(mine_.size());
      decoded_.reserve(ranks, capacity * ranks, 0);
      capacity_ = capacity;
      work.reserve_updates(ranks);
    }

    [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }  // beyond what was selected

    template <class Comm, class Codec>
    gs::exchange_result run(gs::exchange_round<Comm, Workspace, Codec> const& round) {
      auto info = round.info;
      info.passthrough = 0;  // layers that pass through are all-reduced
      // All ranks learn all sizes; if encode() throws on one of them, all ranks throw.
      auto const bytes = round.meet(mine_.size(), [&] {
        return round.how.encode(info, {round.own.indices, round.own.values, {}}, mine_.span());
      });
      gs::exchange_result result{.updates = {}, .sent = round.own, .damage = {}};
      result.bytes_sent = bytes;
      result.bytes_received = round.ranks.total() - bytes;
      decoded_.clear();
      for (int from = 0; from < round.comm.size(); ++from) {
        auto const& place = from == round.comm.rank() ? mine_ : theirs_;
        auto const message = place.first(round.ranks.size(static_cast<std::size_t>(from)));
        round.comm.broadcast(round.work.where(), message, from);
        try {
          if (!result.damage) decoded_.add(round.how, info, message, capacity_);
        } catch (...) {
          result.damage = std::current_exception();
        }
      }
      if (!result.damage) result.updates = decoded_.messages();
      return result;
    }

   private:
    typename Workspace::template buffer<std::byte> mine_, theirs_;
    gs::decoded_messages<Workspace> decoded_;
    std::uint64_t capacity_ = 0;
  };

  friend bool operator==(in_turn const&, in_turn const&) = default;
};
//! [exchange]

int main() {
  auto const by = [](auto exchange) {
    std::vector<float> update(10'000);
    gs::threads::run(3, [&](gs::threads::communicator_ref comm) {
      gs::recipe<gs::radix, gs::whole, gs::error_feedback, gs::packed<>, decltype(exchange)> const recipe{};
      auto reducer = gs::compressor{gs::host{.threads = 1}, gs::layout::flat(10'000), recipe};
      std::vector<float> gradient(10'000);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<float>((i * 31 + static_cast<std::size_t>(comm.rank()) * 7) % 997);
      auto const report = reducer.exchange(comm, gradient);
      if (comm.rank() != 0) return;
      std::cout << exchange.name << ": " << report << '\n';
      update = gradient;
    });
    return update;
  };
  return by(in_turn{}) == by(gs::gather{}) ? 0 : 1;
}
