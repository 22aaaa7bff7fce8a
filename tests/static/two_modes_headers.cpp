// The header-only unit of two_modes.cpp's program.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/run_time.hpp>

#include <string>
#include <vector>

#include "two_modes.hpp"

#if defined(GRADSIEVE_COMPILED)
#error "this unit is header-only"
#endif

namespace {

namespace gs = gradsieve;

struct menu {
  using selectors = gs::type_list<gs::laplacian>;
  using partitioners = gs::type_list<gs::deft>;
  using residuals = gs::type_list<gs::error_feedback>;
  using indices = gs::type_list<gs::raw32>;
  using values = gs::type_list<gs::fp32>;
  using exchanges = gs::type_list<gs::index_union>;
  using formats = gs::type_list<float>;
};

}  // namespace

results header_only(std::vector<float> gradient) {
  auto const layers = gs::layout::flat(gradient.size());
  gs::any_compressor by_text{gs::host{}, layers, gs::any_recipe<menu>::parse("laplacian+deft@0.01")};
  return after_three_steps(by_text, gs::any_communicator{gs::self{}}, std::move(gradient));
}

results by_type(std::vector<float> gradient) {
  gs::compressor made{gs::host{}, gs::layout::flat(gradient.size()),
                      gs::recipe{.density = 0.01, .selector = gs::laplacian{}, .partitioner = gs::deft{}}};
  return after_three_steps(made, gs::self{}, std::move(gradient));
}
