// A sample of keys.
#include <doctest/doctest.h>

#include <gradsieve/gradsieve.hpp>
#include <vector>

namespace gs = gradsieve;

TEST_CASE("a sample answers by rank and by count") {
  std::vector<gs::key_type> keys{};
  for (float const x : {0.5f, 0.0f, 3.0f, 1.0f, 3.0f}) keys.push_back(gs::magnitude_key(x));
  gs::detail::key_sample sample{keys};
  CHECK(sample.size() == 5);
  CHECK(sample.sum_abs() == 7.5);
  CHECK(sample.nonzero() == 4);
  CHECK(sample.count_at_least(gs::magnitude_key(1.0f)) == 3);
  CHECK(sample.count_at_least(gs::infinite_key) == 0);
  auto rank = std::uint64_t{0};
  for (float const x : {3.0f, 3.0f, 1.0f, 0.5f, 0.0f}) CHECK(sample.kth_largest(++rank) == gs::magnitude_key(x));
  CHECK(sample.keys().data() == keys.data());
}
