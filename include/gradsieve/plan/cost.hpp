// The cost of a collective: seconds as a function of bytes.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// `cost(bytes)`: the seconds of one collective for a group of that many bytes, always the same. It may increase and
/// decrease with the size. Infinity and NaN forbid groups of that size; a negative cost is refused. 0 bytes cost
/// nothing. A lambda is a cost_model. With -ffast-math compilers may drop an infinity that a function returns; use
/// merge_constraints::most_bytes to forbid sizes there.
template <class C>
concept cost_model = std::copy_constructible<C> && requires(C const cost, std::uint64_t bytes) {
  { cost(bytes) } -> std::convertible_to<double>;
};

namespace detail {

/// The seconds of what is forbidden or has no plan. Not infinity, because of -ffast-math.
inline constexpr double never = std::numeric_limits<double>::max();

/// The relative tolerance of a certificate, as a fraction of the finish: the rounding of some thousand sums.
inline constexpr double time_tolerance = 1e-12;

inline constexpr std::uint64_t infinity_bits = 0x7FF0'0000'0000'0000u;
inline constexpr std::uint64_t minus_infinity_bits = 0xFFF0'0000'0000'0000u;

[[noreturn]] inline void refuse_seconds(std::uint64_t bytes, double seconds, char const* expected) {
  auto message = plain_text();
  message << "gradsieve: a group of " << bytes << " bytes costs " << seconds << " seconds, expected " << expected;
  throw invalid_argument(message.str());
}

/// The seconds of a group; `never` if its cost is infinite or NaN. @throws invalid_argument if it is negative.
template <cost_model Cost>
[[nodiscard]] double seconds_of(Cost const& cost, std::uint64_t bytes) {
  double const seconds = cost(bytes);
  bool const finite = is_finite(seconds);
  if (finite ? seconds < 0 : stored_bits(seconds) == minus_infinity_bits) refuse_seconds(bytes, seconds, "0 or more");
  return finite ? seconds : never;
}

/// As above, for a group of a plan. @throws invalid_argument if the seconds are negative, infinite or NaN.
template <cost_model Cost>
[[nodiscard]] double planned_seconds_of(Cost const& cost, std::uint64_t bytes) {
  double const seconds = seconds_of(cost, bytes);
  if (!(seconds < never)) refuse_seconds(bytes, cost(bytes), "a finite number");
  return seconds;
}

}  // namespace detail

/// a + b * bytes. Plans for such a cost take O(L) for L layers.
struct affine {
  double a = 0;  ///< seconds of startup
  double b = 0;  ///< seconds per byte

  /// The cost.
  [[nodiscard]] double operator()(std::uint64_t bytes) const noexcept {
    return bytes == 0 ? 0 : a + b * static_cast<double>(bytes);
  }

  /// Checks both. @throws invalid_argument unless they are finite and not negative.
  void check() const {
    require_between("startup a of a cost, in seconds,", a, 0, 1e9);
    require_between("seconds a byte, b of a cost,", b, 0, 1e9);
  }

  friend bool operator==(affine const&, affine const&) = default;
  friend std::ostream& operator<<(std::ostream& out, affine const& it) {
    return describe(out, "affine", std::pair{"a", it.a}, std::pair{"b", it.b});
  }
};

/// The smallest of several affine costs at each size, as of protocols between which a library switches. Plans: O(L) per
/// piece.
struct envelope {
  std::vector<affine> pieces;  ///< at least one

  /// The cost.
  [[nodiscard]] double operator()(std::uint64_t bytes) const noexcept {
    if (bytes == 0 || pieces.empty()) return 0;
    double least = pieces.front()(bytes);
    for (auto const& piece : pieces) least = std::min(least, piece(bytes));
    return least;
  }

  /// Checks all pieces. @throws invalid_argument if there is none, or as affine::check().
  void check() const {
    if (pieces.empty()) throw invalid_argument("gradsieve: an envelope of 0 affine costs; the least is 1");
    for (auto const& piece : pieces) piece.check();
  }

  friend bool operator==(envelope const&, envelope const&) = default;
};

/// Measured sizes and times, with straight lines between them: below the first size its time, above the last size the
/// slope of the last line. An infinite time forbids all sizes above that of the previous point. Plans take O(L^2).
struct table {
  /// A size and its time.
  struct point {
    std::uint64_t bytes = 0;  ///< size
    double seconds = 0;       ///< time
    friend bool operator==(point const&, point const&) = default;
  };
  std::vector<point> points;  ///< in the order of their sizes

  /// The cost.
  [[nodiscard]] double operator()(std::uint64_t bytes) const noexcept {
    if (bytes == 0 || points.empty()) return 0;
    if (points.size() == 1 || bytes <= points.front().bytes) return points.front().seconds;
    auto const above = [](std::uint64_t size, point const& each) { return size < each.bytes; };
    auto right = std::upper_bound(points.begin() + 1, points.end() - 1, bytes, above);
    auto const& left = *(right - 1);
    if (!is_finite(right->seconds)) return bytes == left.bytes ? left.seconds : right->seconds;
    double const slope = (right->seconds - left.seconds) / static_cast<double>(right->bytes - left.bytes);
    return left.seconds + slope * static_cast<double>(bytes - left.bytes);
  }

  /// The running maximum of the times, which noise may have made decrease. Cost: O(points). Allocates.
  [[nodiscard]] table rising() const {
    table made{points};
    for (std::size_t i = 1; i < made.points.size(); ++i)
      made.points[i].seconds = std::max(made.points[i].seconds, made.points[i - 1].seconds);
    return made;
  }

  /// Checks all points. @throws invalid_argument unless there is one, bytes increase, and seconds never decrease and
  /// are neither negative nor NaN.
  void check() const {
    if (points.empty()) throw invalid_argument("gradsieve: a cost table of 0 points; the least is 1");
    for (std::size_t i = 0; i < points.size(); ++i) {
      auto const text = "seconds at " + std::to_string(points[i].bytes) + " bytes in a cost table";
      if (stored_bits(points[i].seconds) != detail::infinity_bits)
        require_between(text, points[i].seconds, i == 0 ? 0 : points[i - 1].seconds, detail::never);
      if (i > 0 && points[i].bytes <= points[i - 1].bytes)
        throw invalid_argument("gradsieve: a cost table has " + std::to_string(points[i].bytes) + " bytes after " +
                               std::to_string(points[i - 1].bytes) + "; sizes rise");
    }
  }

  friend bool operator==(table const&, table const&) = default;
};

/// Calls the cost's check(), if it has one. @throws invalid_argument
template <cost_model Cost>
void check_cost(Cost const& cost) {
  if constexpr (requires { cost.check(); }) cost.check();
}

static_assert(cost_model<affine> && cost_model<envelope> && cost_model<table>);

namespace detail {

/// Costs that never decrease with the size.
template <class C>
concept rising_cost = std::same_as<C, affine> || std::same_as<C, envelope> || std::same_as<C, table>;

}  // namespace detail

}  // namespace gradsieve
