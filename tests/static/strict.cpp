// The program of README over threads, with all that a host's program includes: compiled under strict warnings only.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/delta.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/overlap.hpp>
#include <gradsieve/parameters.hpp>
#include <gradsieve/plan.hpp>
#include <gradsieve/published.hpp>
#include <gradsieve/run_time.hpp>
#include <iostream>
#include <span>
#include <vector>

#include "in_templates.hpp"
namespace gs = gradsieve;
// A user specialises the library's templates by either form, and their names stay in gradsieve.
struct own_codec {};
struct own_values {};
template <>
inline constexpr bool gradsieve::checks_decoded<own_codec> = true;
namespace gradsieve {
template <>
inline constexpr bool checks_decoded<own_values> = true;
}
static_assert(gs::checks_decoded<own_codec> && gs::checks_decoded<own_values>);
int main() {
  auto layers = gs::layout{{"conv1.weight", 9'408}, {"fc.weight", 2'048'000}, {"fc.bias", 1'000}};
  auto recipe = gs::recipe{.density = 0.001, .selector = gs::laplacian{}, .partitioner = gs::deft{}};
  gs::threads::run(2, [&](gs::threads::communicator_ref comm) {
    std::vector<float> gradient(layers.size());
    auto reducer = gs::compressor{gs::host{}, layers, recipe};
    auto report = reducer.exchange(comm, std::span{gradient});
    if (comm.rank() == 0) std::cout << recipe << ": " << report << '\n';
  });
}
