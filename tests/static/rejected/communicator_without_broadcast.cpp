#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

struct no_broadcast {
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
};

void use(std::span<float> gradient) {
  gradsieve::compressor plain{gradsieve::host{}, gradsieve::layout::flat(10), gradsieve::recipe{}};
  plain.exchange(no_broadcast{}, gradient);  // fits
  gradsieve::compressor reducer{gradsieve::host{}, gradsieve::layout::flat(10),
                                gradsieve::recipe{.partitioner = gradsieve::cyclic{}}};
  reducer.exchange(no_broadcast{}, gradient);
}
