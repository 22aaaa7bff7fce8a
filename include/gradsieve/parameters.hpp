// Exchanges parameter changes instead of gradients: for Adam and other normalising optimizers. Depends on the core.
#pragma once

#include <gradsieve/parameters/parameter_exchange.hpp>
#include <gradsieve/parameters/second_moments.hpp>
