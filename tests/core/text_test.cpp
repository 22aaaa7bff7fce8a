// Numbers as text.
#include <doctest/doctest.h>

#include <exception>
#include <gradsieve/gradsieve.hpp>
#include <iomanip>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace gs = gradsieve;

TEST_CASE("numbers print alike, whatever the stream") {
  std::ostringstream out;
  out << std::setprecision(2) << std::fixed << std::hex << std::showpos << gs::shortest{0.1f} << ' '
      << gs::shortest{0.001} << ' ' << gs::shortest{1e-30} << ' ' << gs::shortest{255} << ' ' << gs::shortest{true};
  CHECK(out.str() == "0.1 0.001 1e-30 255 true");
}

TEST_CASE("errors print values and limits as they were given") {
  auto const message = [](double value, double most) {
    try {
      gs::require_between("x", value, 0.1f, most);
    } catch (gs::invalid_argument const& e) {
      return std::string{e.what()};
    }
    return std::string{};
  };
  CHECK(message(2'000'000, 1u << 20) == "gradsieve: x is 2000000, expected 0.1 to 1048576");
  CHECK(message(-1e30, 4'294'967'295u) == "gradsieve: x is -1e+30, expected 0.1 to 4294967295");
  CHECK(message(1.1f, 0.3) == "gradsieve: x is 1.1, expected 0.1 to 0.3");
  CHECK(message(-0.0, 1) == "gradsieve: x is -0, expected 0.1 to 1");
}

TEST_CASE_TEMPLATE("every exception is caught as gs::error, and as the standard one that it was", Exception,
                   gs::invalid_argument, gs::mismatch, gs::corrupt_message, gs::corrupt_state, gs::non_finite_gradient,
                   gs::communication_error, gs::device_error) {
  using standard =
      std::conditional_t<std::is_same_v<Exception, gs::invalid_argument>, std::invalid_argument, std::runtime_error>;
  auto const kept = std::make_exception_ptr(Exception(std::string{"why"}));  // copied, as the steps do
  CHECK_THROWS_WITH_AS(std::rethrow_exception(kept), "why", gs::error);
  CHECK_THROWS_WITH_AS(std::rethrow_exception(kept), "why", standard);
  CHECK_THROWS_WITH_AS(std::rethrow_exception(kept), "why", std::exception);
  CHECK_THROWS_WITH_AS(throw Exception("why"), "why", Exception);
}
