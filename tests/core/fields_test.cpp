// Policies as text, and that they name all their members.
#include <doctest/doctest.h>

#include <gradsieve/gradsieve.hpp>
#include <sstream>
#include <tuple>
#include <utility>

#include "printed.hpp"

namespace gs = gradsieve;

namespace {

struct in_padding {
  [[maybe_unused]] static constexpr char const* name = "in_padding";
  static constexpr auto fields() { return std::tuple{gs::field<&in_padding::c>{"c"}, gs::field<&in_padding::a>{"a"}}; }
  float c = 0;
  bool a = false;
  bool b = false;  // has room where nothing else is
};
struct named_in_full {
  static constexpr char const* name = "named_in_full";
  static constexpr auto fields() {
    return std::tuple{gs::field<&named_in_full::c>{"c"}, gs::field<&named_in_full::a>{"a"}};
  }
  float c = 0;
  bool a = false;
};
struct adds_a_member : named_in_full {
  bool b = false;
};
struct adds_nothing : named_in_full {};
struct empty_heir : gs::radix {};
template <class... T>
struct around {};

}  // namespace

TEST_CASE("policies print their name and fields") {
  std::ostringstream out;
  gs::describe(out, "bare");
  gs::describe(out << ' ', "name", std::pair{"a", 1}, std::pair{"b", 0.5f});
  CHECK(out.str() == "bare name{a 1, b 0.5}");

  struct silent {};
  std::ostringstream other;
  gs::print(other, silent{});
  CHECK(other.str() == "custom");

  CHECK(printed(gs::laplacian{}) == "laplacian{tolerance 0.25, count band, warm true}");
  CHECK(printed(gs::hierarchical{.seed = 7}) == "hierarchical{sample_ratio 0.01, least 0.8, most 1.3, seed 7}");
  CHECK(printed(gs::deft{}) == "deft{cost n log2 k, sharing by_layer, rotate_every 100}");
  CHECK(printed(gs::deft{.cost = {1, 2, 3}, .sharing = gs::deft_sharing::by_fragment, .rotate_every = 1}) ==
        "deft{cost 1 + 2 n + 3 k, sharing by_fragment, rotate_every 1}");
  CHECK(printed(gs::density_schedule{gs::warm_up{.initial = 0.25, .final = 0.01, .steps = 9}}) ==
        "warm_up{initial 0.25, final 0.01, steps 9, stages 0}");
  CHECK(printed(gs::passthrough_layers{}) == "passthrough{up_to 0, <biases and norms>}");
}

TEST_CASE("a policy must name all members, those that lie in padding too; a heir is another policy") {
  static_assert(gs::detail::names_all_members<named_in_full>());
  static_assert(gs::detail::names_all_members<adds_nothing>());
  static_assert(!gs::detail::names_all_members<in_padding>());
  static_assert(!gs::detail::names_all_members<adds_a_member>());
  auto const number = [](auto const& policy) {
    gs::fingerprint all;
    gs::add_to(all, policy);
    return all.value();
  };
  CHECK(number(named_in_full{}) != number(adds_nothing{}));
  CHECK(number(gs::radix{}) != number(empty_heir{}));
  CHECK(number(gs::radix{}) == number(gs::radix{}));
  auto const type = gs::detail::type_name<around<gs::radix, gs::laplacian, gs::radix>>();  // ranks of two versions agree
  CHECK((type.find("radix") < type.size() && type.find(GRADSIEVE_TEXT(GRADSIEVE_ABI)) == type.npos));
}
