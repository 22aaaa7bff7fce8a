// Exchanges parameters instead of gradients: for Adam and all optimizers that normalise. Stands on the core.
#pragma once

#include <gradsieve/parameters/parameter_exchange.hpp>
#include <gradsieve/parameters/second_moments.hpp>
