// Recipes chosen at run time: read from text, for any communicator, with the policies that a menu has compiled. Depends
// on the core, published.hpp and two_level.hpp, as the full menu includes its policies.
#pragma once

#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_compressor.hpp>
#include <gradsieve/run_time/any_policies.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/host_steps.hpp>
#include <gradsieve/run_time/menu.hpp>
