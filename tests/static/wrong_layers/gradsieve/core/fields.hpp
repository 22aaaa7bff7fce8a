#include <gradsieve/core/search.hpp>
