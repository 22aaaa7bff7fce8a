// Selectors with one mistake each: the sentence names it.
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

#define GRADSIEVE_FIT                                                       \
  template <class Workspace>                                                \
  float fit(Workspace& work, gs::accumulator_ref a, gs::index_type) const { \
    return work.mean_abs(a);                                                \
  }

struct not_comparable {
  GRADSIEVE_FIT
  bool keep(float, float) const noexcept { return true; }
};
struct has_nothing {
  friend bool operator==(has_nothing const&, has_nothing const&) = default;
};
struct changing_fit {
  template <class Workspace>
  float fit(Workspace&, gs::accumulator_ref, gs::index_type) {
    return 0;
  }
  bool keep(float, float) const noexcept { return true; }
  friend bool operator==(changing_fit const&, changing_fit const&) = default;
};
struct keeps_floats {
  GRADSIEVE_FIT
  float keep(float x, float) const noexcept { return x; }
  friend bool operator==(keeps_floats const&, keeps_floats const&) = default;
};
struct throwing_keep {
  GRADSIEVE_FIT
  bool keep(float, float) const { return true; }
  friend bool operator==(throwing_keep const&, throwing_keep const&) = default;
};
struct selects_nothing {
  template <class Workspace>
  void select(Workspace&, gs::accumulator_ref, gs::index_type, gs::selection_span) const {}
  friend bool operator==(selects_nothing const&, selects_nothing const&) = default;
};
struct short_bins {
  int bin_length(gs::layer const&) const { return 1; }
  friend bool operator==(short_bins const&, short_bins const&) = default;
};
struct two_forms : gs::radix {
  GRADSIEVE_FIT
  bool keep(float, float) const noexcept { return true; }
  friend bool operator==(two_forms const&, two_forms const&) = default;
};

template <class Selector>
void use() {
  static_assert(gs::compatible<gs::recipe<Selector>, gs::host>);
}
template void use<not_comparable>();
template void use<has_nothing>();
template void use<changing_fit>();
template void use<keeps_floats>();
template void use<throwing_keep>();
template void use<selects_nothing>();
template void use<short_bins>();
template void use<two_forms>();
