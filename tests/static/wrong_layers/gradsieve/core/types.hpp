#include <gradsieve/step/recipe.hpp>
