// One of two translation units that include everything: a function or variable without `inline` fails the link.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

gradsieve::layout layers_of_b();

gradsieve::layout layers_of_b() { return {{"weight", 6}, {"bias", 3}}; }
