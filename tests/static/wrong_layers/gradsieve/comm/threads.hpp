#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/concepts.hpp>
