// Residual stores whose states would never change, or that have none.
#include <gradsieve/gradsieve.hpp>

struct by_value {
  static constexpr std::size_t states = 1;
  void accumulate_element(float gradient, gradsieve::element_state<1> state) const noexcept { state[0] += gradient; }
  void remove_sent(float sent, gradsieve::element_state<1>& state, bool) const noexcept { state[0] -= sent; }
  friend bool operator==(by_value const&, by_value const&) = default;
};

struct stateless {
  static constexpr std::size_t states = 0;
  void accumulate_element(float, gradsieve::element_state<0>&) const noexcept {}
  void remove_sent(float, gradsieve::element_state<0>&, bool) const noexcept {}
  friend bool operator==(stateless const&, stateless const&) = default;
};

#if defined(STATELESS)
gradsieve::recipe const wrong{.residual = stateless{}};
#else
gradsieve::recipe const wrong{.residual = by_value{}};
#endif
static_assert(gradsieve::compatible<decltype(wrong), gradsieve::host>);
