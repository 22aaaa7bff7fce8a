// A residual store of your own: what a gradient does to an element's state, and what stays once a value was sent.
#include <gradsieve/compressor.hpp>

#include <cmath>
#include <iostream>
#include <vector>

namespace gs = gradsieve;

//! [residual]
/// Momentum correction in Nesterov's form. State 0 is the accumulator, from which entries are selected; state 1 the
/// velocity.
struct nesterov {
  //! [fields]
  static constexpr char const* name = "nesterov";
  static constexpr auto fields() { return std::tuple{gs::field<&nesterov::momentum>{"momentum", gs::to_below(0, 1)}}; }
  static constexpr std::size_t states = 2;
  float momentum = 0.9f;
  //! [fields]

  GRADSIEVE_HD constexpr void accumulate_element(float gradient, gs::element_state<states>& state) const noexcept {
    state[1] = gs::multiply_add(momentum, state[1], gradient);
    state[0] = gs::add(state[0], gs::multiply_add(momentum, state[1], gradient));
  }

  GRADSIEVE_HD constexpr void remove_sent(float sent, gs::element_state<states>& state,
                                          bool full_layer) const noexcept {
    state[0] = gs::subtract(state[0], sent);
    if (!full_layer) state[1] = 0;
  }

  friend bool operator==(nesterov const&, nesterov const&) = default;
};
static_assert(gs::residual_store<nesterov>);  // the contract, checked at the definition
//! [residual]

int main() {
  auto reducer = gs::compressor{gs::host{}, gs::layout::flat(1'000),
                                gs::recipe{.density = 0.001, .residual = nesterov{.momentum = 0.5f}}};
  std::vector<float> gradient(1'000);
  gradient[17] = 1.0f;
  gradient[400] = 2.0f;
  auto const first = reducer.compress(gradient);
  std::cout << first.indices[0] << ": " << first.values[0] << '\n';  // 400: 2 + 0.5 * 2
  bool const right = first.indices[0] == 400 && std::fabs(first.values[0] - 3.0f) < 1e-6f;
  auto const second = reducer.compress(std::vector<float>(1'000));
  std::cout << second.indices[0] << ": " << second.values[0] << '\n';  // 17: 1.5, and 0.5 * 0.5 of its velocity
  return right && second.indices[0] == 17 && std::fabs(second.values[0] - 1.75f) < 1e-6f ? 0 : 1;
}
