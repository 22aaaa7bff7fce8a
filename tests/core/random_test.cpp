// Places of a sample.
#include <doctest/doctest.h>

#include <cmath>
#include <gradsieve/core/random.hpp>
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

TEST_CASE("a sample takes one place in each of its strips") {
  for (std::uint64_t const n : {1ull, 7ull, 1000ull, (1ull << 20) + 3, (1ull << 32) - 1})
    for (std::uint64_t const count : {1ull, 3ull, 1000ull, 1ull << 20}) {
      if (count > n) continue;
      CAPTURE(n);
      CAPTURE(count);
      gs::detail::sample_places const places{n, count, gs::mix(n + count)};
      double const strip = static_cast<double>(n) / static_cast<double>(count);
      std::uint64_t sum = 0;
      for (std::uint64_t j = 0; j < count; ++j) {
        REQUIRE(places[j] < n);
        REQUIRE(static_cast<double>(places[j]) >= std::floor(static_cast<double>(j) * strip));
        REQUIRE(static_cast<double>(places[j]) < static_cast<double>(j + 1) * strip + 1);
        sum += places[j];
      }
      // Uniform within a strip: the mean place is in the middle, here to six standard deviations.
      double const mean = static_cast<double>(sum) / static_cast<double>(count);
      double const spread = strip / std::sqrt(12.0 * static_cast<double>(count));
      CHECK(std::abs(mean - (static_cast<double>(n) - 1) / 2) <= 6 * spread + 0.5);
      if (count == n) CHECK(places[n - 1] == n - 1);
    }
}
