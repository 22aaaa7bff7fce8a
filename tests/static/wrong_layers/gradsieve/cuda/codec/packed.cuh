#include <gradsieve/host/team.hpp>
