// Communicators that lack what a step calls, or that have an optional member of another type.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/two_level.hpp>

namespace gs = gradsieve;

struct without_all_reduce {
  int rank() const { return 0; }
  int size() const { return 1; }
};

/// What every recipe needs, and no more.
struct limited : without_all_reduce {
  gs::self real;
  template <class Space, class T>
  void all_reduce(Space const& where, std::span<T> in_out, gs::reduction how) const {
    real.all_reduce(where, in_out, how);
  }
  template <class Space, class... Sizes>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all, Sizes... sizes) const {
    real.all_gather(where, mine, all, sizes...);
  }
};

struct without_send_receive : limited {
  template <class Space>
  void broadcast(Space const& where, std::span<std::byte> in_out, int root) const {
    real.broadcast(where, in_out, root);
  }
};

struct wrong_stages : gs::self {
  static constexpr int stages = 1;
};
struct wrong_stream_ordered : gs::self {
  bool stream_ordered = true;
};
struct wrong_require_threads : gs::self {
  void require_threads() {}
};

struct from_rank_to_rank : gs::gather {
  static constexpr gs::exchange_traits traits{.encodes = true, .send_receive = true};
};

template <class Comm, class Recipe>
void step(Recipe const& policies, std::span<float> gradient) {
  gs::compressor reducer{gs::host{}, gs::layout::flat(10), policies};
  reducer.exchange(Comm{}, gradient);
}

void use(std::span<float> gradient) {
  gs::recipe const cyclic{.partitioner = gs::cyclic{}};
  gs::recipe const rounding{.partitioner = gs::cyclic{}, .codec = gs::packed{.values = gs::fp16{}}};
  step<without_all_reduce>(gs::recipe{}, gradient);
  step<limited>(gs::recipe{}, gradient);  // fits
  step<limited>(cyclic, gradient);
  step<without_send_receive>(cyclic, gradient);  // fits
  step<without_send_receive>(rounding, gradient);
  step<without_send_receive>(gs::recipe{.exchange = gs::reduce_scatter{}}, gradient);
  step<without_send_receive>(gs::recipe{.exchange = from_rank_to_rank{}}, gradient);
  gs::two_level const nodes{without_all_reduce{}, gs::self{}};
  gs::two_level_compressor inside{gs::host{}, gs::layout::flat(10), gs::recipe{}, nodes};
  inside.exchange(nodes, gradient);
  step<gs::two_level<gs::self, gs::self>>(gs::recipe{}, gradient);  // a pair, and no communicator
  step<wrong_stages>(gs::recipe{}, gradient);
  step<wrong_stream_ordered>(gs::recipe{}, gradient);
  step<wrong_require_threads>(gs::recipe{}, gradient);
}
