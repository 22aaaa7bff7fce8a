#include <cmath>
inline bool good(float x) { return !std::isnan(x); }
inline double bad() { return std::numeric_limits<double>::quiet_NaN(); }
inline void worse() { throw std::logic_error("not of the library"); }
