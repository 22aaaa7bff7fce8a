#include <gradsieve/overlap.hpp>
