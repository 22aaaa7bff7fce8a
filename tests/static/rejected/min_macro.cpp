// Macros of these names, after the standard library's headers, which would undefine them.
#include <algorithm>
#define min(a, b) ((a) < (b) ? (a) : (b))
#include <gradsieve/gradsieve.hpp>
