#include <gradsieve/core/bins.hpp>
#include <gradsieve/core/fields.hpp>
