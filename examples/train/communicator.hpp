// One type for every transport, so that the training loop is compiled once.
#pragma once

#include <gradsieve/run_time/any_communicator.hpp>

namespace example {

using communicator = gradsieve::any_communicator;

}  // namespace example
