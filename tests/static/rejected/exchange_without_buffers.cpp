#include <gradsieve/gradsieve.hpp>

struct no_buffers {
  static constexpr gradsieve::exchange_traits traits{.encodes = true};
  friend bool operator==(no_buffers const&, no_buffers const&) = default;
};

void use() {
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10), gradsieve::recipe{.exchange = no_buffers{}}};
}
