// Every selector passes the conformance suite, and wrong ones do not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

#include "selector_conformance.hpp"
#include "steps.hpp"

namespace gs = gradsieve;

TEST_CASE("selectors of the core") {
  CHECK(selector_conformance::run(gs::radix{}) == "");
  CHECK(selector_conformance::run(gs::laplacian{}) == "");
  CHECK(selector_conformance::run(gs::laplacian{.count = gs::count_mode::exact}) == "");
  CHECK(selector_conformance::run(gs::laplacian{.tolerance = 0, .warm = false}) == "");
  CHECK(selector_conformance::run(gs::hierarchical{}) == "");
  CHECK(selector_conformance::run(gs::fixed_threshold{}) == "");
  CHECK(selector_conformance::run(gs::fixed_threshold{.magnitude = 1e-3f, .most = 1.5f}) == "");
  CHECK(selector_conformance::run(gs::chunked{.size = 64}) == "");
  CHECK(selector_conformance::run(gs::adacomp{}) == "");
}

TEST_CASE("published selectors") {
  CHECK(selector_conformance::run(gs::trimmed{}) == "");
  CHECK(selector_conformance::run(gs::threshold_search{}) == "");
  CHECK(selector_conformance::run(gs::ldte{}) == "");
  CHECK(selector_conformance::run(gs::sidco{}) == "");
  CHECK(selector_conformance::run(gs::random_k{}) == "");
}

TEST_CASE("a threshold of a user's own") { CHECK(selector_conformance::run(steps::above_mean{}) == ""); }

namespace own {

/// Exact top-k with nothing but choose() and settle().
struct among {
  [[nodiscard]] gs::candidate_choice choose(gs::accumulator_ref const, gs::candidates const& found,
                                            gs::index_type k) const noexcept {
    return gs::detail::has_largest(found, k) ? gs::candidate_choice::largest(k) : gs::candidate_choice::none();
  }
  [[nodiscard]] gs::threshold settle(gs::accumulator_ref const, gs::candidates const&, gs::index_type,
                                     gs::threshold const at) const {
    return at;
  }
  [[maybe_unused]] friend bool operator==(among const&, among const&) = default;
};

/// The same with candidates that never suffice, and a rule of its own then: at most half of k.
struct searches : among {
  [[nodiscard]] gs::candidate_choice choose(gs::accumulator_ref const, gs::candidates const&,
                                            gs::index_type) const noexcept {
    return gs::candidate_choice::none();
  }
  [[nodiscard]] gs::threshold settle(gs::accumulator_ref const, gs::candidates const&, gs::index_type,
                                     gs::threshold const at) const {
    return at;
  }
  template <class Workspace>
  [[nodiscard]] gs::threshold search(Workspace& work, gs::accumulator_ref const acc, gs::index_type k) const {
    return work.kth_largest(acc, (k + 1) / 2);
  }
  [[maybe_unused]] friend bool operator==(searches const&, searches const&) = default;
};

/// Keeps all that reaches 918, twice as many as there is room for.
struct keeps_all : among {
  template <class Workspace>
  [[nodiscard]] gs::key_type predict(Workspace&, gs::accumulator_ref const, gs::index_type) const {
    return gs::magnitude_key(918.0f);
  }
  [[nodiscard]] gs::candidate_choice choose(gs::accumulator_ref const acc, gs::candidates const& found,
                                            gs::index_type k) const noexcept {
    return among::choose(acc, found, k);
  }
  [[nodiscard]] gs::threshold settle(gs::accumulator_ref const, gs::candidates const& found, gs::index_type,
                                     gs::threshold const) const {
    return gs::detail::every(found);
  }
  [[maybe_unused]] friend bool operator==(keeps_all const&, keeps_all const&) = default;
};

/// radix for half of the budget.
struct half {
  template <class Workspace>
  gs::index_type select(Workspace& work, gs::accumulator_ref const acc, gs::index_type k,
                        gs::selection_span out) const {
    return gs::radix{}.select(work, acc, k / 2, out);
  }
  [[maybe_unused]] friend bool operator==(half const&, half const&) = default;
};

}  // namespace own

TEST_CASE("a selector that keeps more than there is room for, with several threads") {
  constexpr std::size_t n = std::size_t{1} << 21;
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; i += 40) values[i] = 1 + static_cast<float>(i % 997);
  for (int const threads : {1, 2, 3}) {
    auto mine = gs::compressor{gs::host{.threads = threads}, gs::layout{{"w", n}},
                               gs::recipe{.density = 0.001, .selector = own::keeps_all{}}};
    auto const sent = mine.compress(values);
    CHECK(sent.indices.size() == gs::budget_of(0.001, n));
    CHECK(std::ranges::is_sorted(sent.indices));
  }
}

TEST_CASE("a selector that leaves the choice to radix, for a budget of nothing") {
  auto mine = gs::compressor{gs::host{}, gs::layout{{"w", 8}}, gs::recipe{.density = 0.1, .selector = own::half{}}};
  CHECK(mine.compress(std::vector<float>{0, 3, -1, 2, 0, -4, 1, 5}).indices.empty());
}

TEST_CASE("select() follows from choose() and settle()") {
  CHECK(selector_conformance::run(own::among{}) == "");
  CHECK(selector_conformance::run(own::searches{}) == "");
  std::vector<float> const values{0, 3, -1, 2, 0, -4, 1, 5};
  auto const indices = [&](auto const& selector) {
    auto mine = gs::compressor{gs::host{}, gs::layout{{"w", 8}}, gs::recipe{.density = 0.5, .selector = selector}};
    auto const sent = mine.compress(values);
    return std::vector<gs::index_type>(sent.indices.begin(), sent.indices.end());
  };
  CHECK(indices(own::among{}) == indices(gs::radix{}));
  CHECK(indices(own::among{}) == std::vector<gs::index_type>{1, 3, 5, 7});
  CHECK(indices(own::searches{}) == std::vector<gs::index_type>{5, 7});
}

namespace wrong {

enum class fault { none, value, order, place, count, zeros, memory, threads };

/// The first k elements that are not zero, but for a fault.
template <fault Fault>
struct first_ones {
  static inline int calls = 0;

  gs::index_type select(gs::host_workspace& work, gs::accumulator_ref const acc, gs::index_type k,
                        gs::selection_span const out) const {
    gs::index_type count = 0;
    ++calls;
    std::size_t const begin = Fault == fault::memory ? static_cast<std::size_t>(calls) % 3 : 0;
    if (Fault == fault::threads && work.where().threads == 3) --k;
    k = std::min(k, static_cast<gs::index_type>(out.indices.size()));
    for (std::size_t i = begin; i < acc.values.size() && count < k; ++i) {
      if (acc.values[i] == 0 && Fault != fault::zeros) continue;
      out.indices[count] = static_cast<gs::index_type>((Fault == fault::place ? 0 : acc.first) + i);
      out.values[count] = Fault == fault::value ? acc.values[i] / 2 : acc.values[i];
      ++count;
    }
    if (Fault == fault::order && count > 1) std::swap(out.indices[0], out.indices[1]);
    return Fault == fault::count ? count + 1 : count;
  }

  [[maybe_unused]] friend bool operator==(first_ones const&, first_ones const&) = default;
};

/// radix, whose choose() wants an entry less than select() gives.
struct one_less : gs::radix {
  template <class Workspace>
  gs::index_type select(Workspace& work, gs::accumulator_ref const acc, gs::index_type k,
                        gs::selection_span out) const {
    return gs::radix::select(work, acc, k, out);
  }
  gs::candidate_choice choose(gs::accumulator_ref const, gs::candidates const& found, gs::index_type k) const noexcept {
    return found.count > k && k > 1 ? gs::candidate_choice::largest(k - 1) : gs::candidate_choice::none();
  }
  gs::threshold settle(gs::accumulator_ref const, gs::candidates const&, gs::index_type, gs::threshold const at) const {
    return at;
  }
  [[maybe_unused]] friend bool operator==(one_less const&, one_less const&) = default;
};

/// Says that it predicts the warm threshold, and does not.
struct forgets : gs::radix {
  template <class Workspace>
  gs::key_type predict(Workspace&, gs::accumulator_ref const, gs::index_type) const {
    return 1;
  }
  bool predicts_warm() const noexcept { return true; }
  [[maybe_unused]] friend bool operator==(forgets const&, forgets const&) = default;
};

template <class Selector>
std::string first_line(Selector const& chosen) {
  auto const text = selector_conformance::run(chosen);
  return text.substr(0, text.find('\n'));
}

}  // namespace wrong

TEST_CASE("wrong selectors are reported, with the values") {
  using wrong::fault;
  CHECK(selector_conformance::run(wrong::first_ones<fault::none>{}) == "");
  CHECK(wrong::first_line(wrong::first_ones<fault::value>{}) ==
        "laplace, n 1, k 1: entry 0 (index 0) is -0.00326761, the accumulator has -0.00653522");
  CHECK(wrong::first_line(wrong::first_ones<fault::order>{}) ==
        "laplace, n 2, k 2: threw 'gradsieve: the selector's select() wrote indices that do not increase'");
  CHECK(wrong::first_line(wrong::first_ones<fault::place>{}) ==
        "steps, 1 layers a segment, density 0.03: threw 'gradsieve: the selector's select() wrote indices 0 to 0, the "
        "segment has 716 to 716'");
  CHECK(wrong::first_line(wrong::first_ones<fault::count>{}) ==
        "laplace, n 1, k 1: select() returned 2 entries, there is room for 1");
  CHECK(wrong::first_line(wrong::first_ones<fault::zeros>{}) == "all_zero, n 1, k 1: entry 0 (index 0) is a zero");
  CHECK(wrong::first_line(wrong::first_ones<fault::memory>{}) ==
        "laplace, n 1, k 1: step 1: 2 threads choose other entries than one");
  CHECK(wrong::first_line(wrong::first_ones<fault::threads>{}) ==
        "laplace, n 1, k 1: step 1: 3 threads choose other entries than one");
  CHECK(
      wrong::first_line(wrong::one_less{}) ==
      "laplace, n 37, k 18: select() gives 18 entries, choose() and settle() 17 or others, with candidates from key 1, "
      "warm {1, 18}");
  CHECK(wrong::first_line(wrong::forgets{}) ==
        "laplace, n 1, k 1: predict() returns 1, the warm threshold is 1003890031, as predicts_warm() promises");
}
