// Arithmetic that host and device share.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

TEST_CASE("multiply_add rounds twice") {
  // The exact product is 1 + 2^-11 + 2^-24; rounded to a float it loses the last bit, fused it would not.
  float const x = 1.0f + 0x1p-12f;
  float const volatile hidden = x;
  CHECK(gs::multiply_add(hidden, hidden, -(1.0f + 0x1p-11f)) == 0.0f);
}

TEST_CASE("arithmetic for both spaces is that of the standard library") {
  for (int const a : {-3, 0, 5})
    for (int const b : {-3, 0, 5}) {
      CHECK(gs::smaller(a, b) == std::min(a, b));
      CHECK(gs::larger(a, b) == std::max(a, b));
      for (int const x : {-9, -3, 2, 5, 9})
        if (a <= b) CHECK(gs::clamped(x, a, b) == std::clamp(x, a, b));
    }
  for (std::uint64_t const x : {0ull, 1ull, 2ull, 3ull, 255ull, 256ull, 0x7FFF'FFFFull, 0x8000'0000ull, 0xFFFF'FFFFull})
    CHECK(gs::bit_width(static_cast<std::uint32_t>(x)) == static_cast<unsigned>(std::bit_width(x)));
}
