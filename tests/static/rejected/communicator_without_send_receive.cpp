#include "limited.hpp"

struct no_send_receive : limited {
  template <class Space>
  void broadcast(Space const& where, std::span<std::byte> in_out, int root) const {
    real.broadcast(where, in_out, root);
  }
};

void use(std::span<float> gradient) {
  gradsieve::compressor plain{gradsieve::host{}, gradsieve::layout::flat(10),
                              gradsieve::recipe{.partitioner = gradsieve::cyclic{}, .codec = gradsieve::packed{}}};
  plain.exchange(no_send_receive{}, gradient);  // fits
  gradsieve::compressor reducer{
      gradsieve::host{}, gradsieve::layout::flat(10),
      gradsieve::recipe{.partitioner = gradsieve::cyclic{}, .codec = gradsieve::packed{.values = gradsieve::fp16{}}}};
  reducer.exchange(no_send_receive{}, gradient);
}
