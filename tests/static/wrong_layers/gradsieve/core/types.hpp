#include <gradsieve/recipe.hpp>
