// Views and what converts to them.
#include <doctest/doctest.h>

#include <algorithm>
#include <gradsieve/gradsieve.hpp>
#include <span>
#include <type_traits>
#include <vector>

namespace gs = gradsieve;

namespace {
template <class From, class To>
constexpr bool converts = std::is_convertible_v<From, To>;

static_assert(std::is_trivially_copyable_v<gs::view<float>> && std::is_trivially_copyable_v<gs::accumulator_ref>);
static_assert(converts<std::vector<float>&, gs::view<float>> && converts<std::vector<float>&, gs::view<float const>>);
static_assert(converts<std::span<float>, gs::view<float const>> && converts<gs::view<float>, gs::view<float const>>);
static_assert(converts<gs::view<float>, std::span<float>> && converts<gs::view<float>, std::span<float const>>);
static_assert(!converts<std::vector<float> const&, gs::view<float>>);
static_assert(!converts<gs::view<float const>, gs::view<float>> && !converts<gs::view<float const>, std::span<float>>);
static_assert(!converts<std::vector<float>, gs::view<float>> && !converts<std::vector<int>&, gs::view<float>>);
}  // namespace

TEST_CASE("a view is a span for both spaces") {
  std::vector<int> values{1, 2, 3, 4, 5};
  gs::view<int> const all = values;
  all[1] = 7;
  CHECK(values[1] == 7);
  CHECK(all.data() == values.data());
  CHECK(all.size() == 5);
  CHECK(std::equal(all.begin(), all.end(), values.begin(), values.end()));
  gs::view<int const> const middle = all.subspan(1, 3).first(2);
  CHECK(middle.size() == 2);
  CHECK(middle[0] == 7);
  std::span<int const> const back = middle;
  CHECK(back.data() == values.data() + 1);
  CHECK(back.size() == 2);
  CHECK(gs::view<int>{}.empty());
  CHECK(!all.empty());
}
