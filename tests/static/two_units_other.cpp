// A unit with headers of another version, in the program of two others: its function of the same name and argument is
// another function, as its argument is another class.
#define GRADSIEVE_ABI v9_9_9
#include <gradsieve/core/passthrough_layers.hpp>

std::uint64_t passing(gradsieve::layout const& layers);
std::uint64_t passing_in_other();

std::uint64_t passing(gradsieve::layout const& layers) { return 100 + gradsieve::passthrough_layers{}.of(layers).size(); }

std::uint64_t passing_in_other() { return passing({{"weight", 6}, {"bias", 3}, {"more", 1}}); }
