// Partitioners and other policies with one mistake each: the sentence names it.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

struct no_exchange {
  static constexpr gs::partitioner_traits traits{};
  void split(std::span<gs::range const>, int, gs::segment_list&) const {}
  void assign(std::span<gs::segment>, std::span<double const>, gs::step_budget, gs::partition_scratch&) const {}
  friend bool operator==(no_exchange const&, no_exchange const&) = default;
};
struct own_norms : gs::whole {
  bool needs_norms = false;
};
struct no_promises {
  using default_exchange = gs::gather;
  void split(std::span<gs::range const>, int, gs::segment_list&) const {}
  void assign(std::span<gs::segment>, std::span<double const>, gs::step_budget, gs::partition_scratch&) const {}
  friend bool operator==(no_promises const&, no_promises const&) = default;
};
struct splits_otherwise : gs::whole {
  void split(gs::segment_list&) const {}
};
struct assigns_otherwise : gs::whole {
  void assign(std::span<gs::segment>) const {}
};
template <class Partitioner>
void use() {
  static_assert(gs::compatible<gs::recipe<gs::radix, Partitioner, gs::error_feedback, gs::coo, gs::gather>, gs::host>);
}
template void use<own_norms>();
template void use<no_promises>();
template void use<splits_otherwise>();
template void use<assigns_otherwise>();

struct own_id : gs::fp32 {
  std::uint16_t id = 40'000;
};
gs::packed<gs::raw32, own_id> const codec;

struct runs_void {
  static constexpr gs::exchange_traits traits{.encodes = true};
  template <class Workspace>
  struct buffers {
    template <class Codec>
    void reserve(Workspace&, Codec const&, gs::message_info const, int, std::uint64_t, bool) {}
    std::uint64_t most_sent() const { return 0; }
    template <class Round>
    void run(Round const&) {}
  };
  friend bool operator==(runs_void const&, runs_void const&) = default;
};
static_assert(
    gs::exchangeable<gs::recipe<gs::radix, gs::whole, gs::error_feedback, gs::coo, runs_void>, gs::host, gs::self>);

void make() { gs::recipe{.partitioner = no_exchange{}}; }
