// How long does planning take? Milliseconds, for layers whose sizes and times vary as those of real ones do. No floor.
#include <cmath>
#include <gradsieve/core/random.hpp>
#include <gradsieve/plan.hpp>

#include "../examples/simulate/robust.hpp"
#include "rows.hpp"

namespace bench {
namespace {

gs::trace layers(std::size_t count) {
  std::vector<gs::traced_layer> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto const uniform = [i](std::uint64_t which) {
      return static_cast<double>(gs::mix(2 * i + which) >> 11) * 0x1p-53;
    };
    all[i] = {"layer", static_cast<std::uint64_t>(std::exp(6 + 10 * uniform(0))), 1e-4 * uniform(1), 5e-5, 0};
  }
  return gs::trace{std::move(all)};
}

template <class Policy, class Cost>
void add_row(std::string const& name, std::size_t count, Policy const& policy, Cost const& cost) {
  benchmark::RegisterBenchmark(("plan/" + name + "/layers:" + std::to_string(count)).c_str(),
                               [=](benchmark::State& state) {
                                 auto const of = layers(count);
                                 std::size_t groups = 0;
                                 for (auto _ : state) groups = gs::make_plan(of, cost, policy).groups().size();
                                 state.counters["groups"] = static_cast<double>(groups);
                               })
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

void add_schedule(options const&) {
  gs::affine const cost{1e-3, 1e-9};  // compute and communication about equal
  gs::envelope const two{{cost, {3e-4, 3e-9}}};
  gs::table const measured{{{1'000, 1e-3}, {1'000'000, 2e-3}, {2'000'000, 4e-3}, {100'000'000, 110e-3}}};
  auto const function = [cost](std::uint64_t bytes) { return cost(bytes); };  // of which nothing is known
  for (std::size_t const count : {1'000u, 10'000u, 100'000u}) {
    add_row("optimal/affine", count, gs::optimal{}, cost);
    add_row("optimal_latest/affine", count, gs::optimal{gs::ties::latest}, cost);
    add_row("mgwfbp/affine", count, gs::mgwfbp{}, cost);
    add_row("robust/affine", count, tools::robust{}, cost);
    add_row("optimal/envelope", count, gs::optimal{}, two);
    add_row("optimal/affine_many_groups", count, gs::optimal{}, gs::affine{1e-6, 1e-10});
    if (count > 10'000) continue;
    add_row("optimal/table", count, gs::optimal{}, measured);
    add_row("optimal/function", count, gs::optimal{}, function);
  }
}

}  // namespace bench
