#include <gradsieve/host/workspace.hpp>
