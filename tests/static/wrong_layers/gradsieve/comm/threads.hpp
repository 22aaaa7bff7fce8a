#include <gradsieve/concepts.hpp>
#include <gradsieve/comm/mpi.hpp>
