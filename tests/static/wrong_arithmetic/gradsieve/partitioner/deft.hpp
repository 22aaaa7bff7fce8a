// std::log2 and isnan() may stand in comments.
#include <cmath>
inline double cost(double n, double k) { return n * std::log2(k); }
