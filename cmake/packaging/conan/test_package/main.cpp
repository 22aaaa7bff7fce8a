#include <gradsieve/gradsieve.hpp>

int main() { return gradsieve::layout{{"weight", 12}, {"bias", 3}}.size() == 15 ? 0 : 1; }
