#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

struct no_send_receive {
  gradsieve::self real;
  int rank() const { return 0; }
  int size() const { return 1; }
  template <class Space, class T>
  void all_reduce(Space const& where, std::span<T> in_out, gradsieve::reduction how) const {
    real.all_reduce(where, in_out, how);
  }
  template <class Space, class... Sizes>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all, Sizes... sizes) const {
    real.all_gather(where, mine, all, sizes...);
  }
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
