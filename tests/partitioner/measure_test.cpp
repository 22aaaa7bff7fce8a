// A fitted cost is usable as DEFT's weight, and the same on all ranks.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

TEST_CASE("the fit has no negative term and grows with the fragment") {
  auto const cost = gs::measure_selection_cost(gs::host{.threads = 1}, gs::radix{}, 1u << 14);
  for (double const term : {cost.fixed, cost.per_element, cost.per_selected}) {
    CHECK(std::isfinite(term));
    CHECK(term >= 0);
  }
  CHECK(cost != gs::selection_cost{});
  CHECK(cost(1u << 20, 1000) >= cost(1u << 10, 1000));
}

TEST_CASE("all ranks hold rank 0's cost, and DEFT takes it") {
  std::vector<gs::selection_cost> costs(3);
  gs::threads::run(3, [&](auto comm) {
    auto const cost = gs::measure_selection_cost(gs::host{.threads = 1}, gs::laplacian{}, comm);
    costs[static_cast<std::size_t>(comm.rank())] = cost;
    gs::compressor reducer{gs::host{.threads = 1}, gs::layout{{"a", 300}, {"b", 5'000}},
                           gs::recipe{.density = 0.1, .partitioner = gs::deft{.cost = cost}}};
    std::vector<float> gradient(5'300, 1.0f);
    CHECK(reducer.exchange(comm, gradient).union_size == 530);
  });
  CHECK(costs[1] == costs[0]);
  CHECK(costs[2] == costs[0]);
}
