#include <gradsieve/schedule/overlap/overlap.hpp>
