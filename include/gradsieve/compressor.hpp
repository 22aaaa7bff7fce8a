// A compressor on the host, and the recipe with its default policies. Include the other policies that you name:
// selector/laplacian.hpp, and the transport: comm/mpi.hpp.
#pragma once

#include <gradsieve/host/step.hpp>
#include <gradsieve/step/compressor_class.hpp>
