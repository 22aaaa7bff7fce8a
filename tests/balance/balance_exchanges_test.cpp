// Nothing is lost where an exchange cuts the selections.

#include <gradsieve/published.hpp>

#include "balance.hpp"

namespace gs = gradsieve;

TEST_CASE("mass balance, reduce_scatter with every selector") {
  auto const with = [](auto selector) { balance::one<gs::whole, gs::reduce_scatter>(selector, gs::error_feedback{}); };
  SUBCASE("radix") { balance::all_residuals<gs::whole, gs::reduce_scatter>(gs::radix{}); }
  SUBCASE("laplacian") { with(gs::laplacian{}); }
  SUBCASE("hierarchical") { with(gs::hierarchical{}); }
  SUBCASE("chunked") { with(gs::chunked{.size = 500}); }
  SUBCASE("a user's") { with(balance::above_mean{}); }
  SUBCASE("deft") { balance::one<gs::deft, gs::reduce_scatter>(gs::radix{}, gs::error_feedback{}); }
  SUBCASE("cyclic") { balance::one<gs::cyclic, gs::reduce_scatter>(gs::radix{}, gs::error_feedback{}); }
  SUBCASE("layerwise") { balance::one<gs::layerwise, gs::reduce_scatter>(gs::radix{}, gs::error_feedback{}); }
}

TEST_CASE("mass balance, reduce_scatter with every codec") {
  auto const values = [](auto each) {
    balance::one<gs::whole, gs::reduce_scatter>(gs::radix{}, gs::error_feedback{}, gs::packed{.values = each});
  };
  auto const indices = [](auto each) {
    balance::one<gs::whole, gs::reduce_scatter>(gs::radix{}, gs::error_feedback{}, gs::packed{.indices = each});
  };
  SUBCASE("fp32, automatic") { values(gs::fp32{}); }
  SUBCASE("fp16") { values(gs::fp16{}); }
  SUBCASE("bf16") { values(gs::bf16{}); }
  SUBCASE("int8") { values(gs::int8{}); }
  SUBCASE("int4") { values(gs::int4{}); }
  SUBCASE("ternary") { values(gs::ternary{}); }
  SUBCASE("sign") { values(gs::sign{}); }
  SUBCASE("qsgd") { values(gs::qsgd{}); }
  SUBCASE("raw32") { indices(gs::raw32{}); }
  SUBCASE("delta") { indices(gs::delta{}); }
  SUBCASE("elias_fano") { indices(gs::elias_fano{}); }
  SUBCASE("bitmap") { indices(gs::bitmap{}); }
  SUBCASE("fixed_width") { indices(gs::fixed_width{}); }
  SUBCASE("binned") {
    balance::one<gs::whole, gs::reduce_scatter>(gs::chunked{.size = 500}, gs::error_feedback{}, gs::binned{});
  }
}

TEST_CASE("mass balance, coded_all_reduce") {
  auto const with = [](auto selector, auto codec) {
    balance::one<gs::whole, gs::coded_all_reduce>(selector, gs::error_feedback{}, codec);
  };
  gs::coded_all_reduce const all{.returned = 8};  // to the bit
  SUBCASE("radix") { balance::all_residuals<gs::whole>(gs::radix{}, all); }
  SUBCASE("radix, sums that stay") { balance::all_residuals<gs::whole, gs::coded_all_reduce>(gs::radix{}); }
  SUBCASE("laplacian, int4") { with(gs::laplacian{}, gs::packed{.values = gs::int4{}}); }
  SUBCASE("a user's, fp16") { with(balance::above_mean{}, gs::packed{.values = gs::fp16{}}); }
  SUBCASE("chunked, binned") { with(gs::chunked{.size = 500}, gs::binned{}); }
  SUBCASE("deft, sign") {
    balance::one<gs::deft, gs::coded_all_reduce>(gs::radix{}, gs::error_feedback{}, gs::packed{.values = gs::sign{}});
  }
  SUBCASE("cyclic") {
    balance::one<gs::cyclic>(gs::radix{}, gs::error_feedback{}, gs::coo{}, gs::cyclic{}, all);
  }
}
