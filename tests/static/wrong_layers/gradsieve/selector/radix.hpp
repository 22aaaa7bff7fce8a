#include <gradsieve/selector/chunked.hpp>
