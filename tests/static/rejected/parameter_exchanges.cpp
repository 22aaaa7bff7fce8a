// Compressors that cannot exchange parameters: each is refused by a sentence of its own.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/parameters.hpp>
#include <gradsieve/two_level.hpp>

namespace gs = gradsieve;

template <class Recipe>
void make(Recipe const& recipe, std::span<float> own) {
  gs::parameter_exchange made{gs::compressor{gs::host{}, gs::layout::flat(10), recipe}, own};
}

void use(std::span<float> own, std::span<gs::float16> narrow) {
  make(gs::recipe{.residual = gs::momentum_correction{}}, own);
  make(gs::recipe{.exchange = gs::reduce_scatter{}}, own);
  auto const ranks = gs::two_level{gs::self{}, gs::self{}};
  gs::parameter_exchange part{gs::two_level_compressor{gs::host{}, gs::layout::flat(10), gs::recipe{}, ranks}, own};
  gs::parameter_exchange fits{gs::compressor{gs::host{}, gs::layout::flat(10), gs::recipe{}}, own};
  fits.exchange_parameters(gs::self{}, narrow);
}
