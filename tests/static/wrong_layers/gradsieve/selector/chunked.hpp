#include <gradsieve/selector/radix.hpp>
