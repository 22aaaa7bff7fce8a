#include <cstdint>
#include <mpi.h>
#  include <zlib.h>
namespace gradsieve::detail {}
