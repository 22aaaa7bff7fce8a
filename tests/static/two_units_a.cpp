// One of two translation units that include everything: a function or variable without `inline` fails the link.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

gradsieve::layout layers_of_b();

int main() { return layers_of_b() == gradsieve::layout{{"weight", 6}, {"bias", 3}} ? 0 : 1; }
