#include <gradsieve/gradsieve.hpp>
