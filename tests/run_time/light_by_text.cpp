// The unit of light_test that has any_compressor.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/run_time/any_compressor.hpp>

#include <sstream>
#include <string>

#include "light_test.hpp"

namespace gs = gradsieve;

outcome by_text(std::string const& recipe, void const* communicator, int rank) {
  gs::any_communicator const comm{*static_cast<gs::threads::communicator_ref const*>(communicator)};
  gs::any_compressor reducer{gs::host{}, gs::layout{{"a.weight", 1000}, {"a.bias", 10}, {"b.weight", 1990}},
                             gs::any_recipe<>::parse(recipe)};
  return outcome_of(reducer, comm, rank, [](auto const& it) {
    std::ostringstream out;
    out << it;
    return out.str();
  });
}
