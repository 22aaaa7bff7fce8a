// Recipes by text: read, written, refused, and the same bits as recipes that are written in C++.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/overlap.hpp>
#include <gradsieve/parameters.hpp>
#include <gradsieve/plan.hpp>
#include <gradsieve/run_time.hpp>

#include "../../examples/c/objects.hpp"

namespace {

namespace gs = gradsieve;

// A part of the full menu in its formats. Without sanitizers its steps are gradsieve::compiled's; with them they are
// compiled here, which is why it is short.
struct menu {
  using selectors = gs::full_menu::selectors;
  using partitioners = gs::type_list<gs::whole, gs::layerwise, gs::deft>;
  using residuals = gs::type_list<gs::error_feedback, gs::momentum_correction>;
  using indices = gs::full_menu::indices;
  using values = gs::full_menu::values;
  using exchanges = gs::full_menu::exchanges;
  using formats = gs::full_menu::formats;
};
using recipe_by_text = gs::any_recipe<menu>;

std::vector<float> gradient_of(int step) {
  std::vector<float> made(3000);
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<float>(std::sin(static_cast<double>(i * i + 17) * (step + 1)) /
                                 (1.0 + static_cast<double>(i % 97)));
  return made;
}

gs::layout layers() { return gs::layout{{"a.weight", 1000}, {"a.bias", 10}, {"b.weight", 1990}}; }

template <class Recipe>
void check_same_bits(std::string const& text, Recipe const& recipe) {
  CAPTURE(text);
  gs::any_compressor<menu> by_text{gs::host{}, layers(), recipe_by_text::parse(text)};
  gs::compressor by_type{gs::host{}, layers(), recipe};
  gs::any_communicator const comm{gs::self{}};
  CHECK(by_text.hash() == by_type.recipe().hash());
  for (int step = 0; step < 3; ++step) {
    auto a = gradient_of(step);
    auto b = a;
    by_text.exchange(comm, a);
    by_type.exchange(gs::self{}, b);
    CHECK(a == b);
  }
  auto const gradient = gradient_of(3);
  auto const one = by_text.encode(by_text.compress(gradient));
  auto const other = by_type.encode(by_type.compress(gradient));
  std::vector<std::byte> const message(one.begin(), one.end());
  CHECK(message == std::vector<std::byte>(other.begin(), other.end()));
  CHECK(by_text.state() == by_type.state());

  std::vector<float> a(3000);
  std::vector<float> b(3000);
  std::span<std::byte const> const messages[] = {message};
  by_text.apply(messages, a);
  gs::averager{gs::host{}, layers(), recipe}.apply(messages, b);
  CHECK(a == b);
}

std::string why_refused(std::string const& text) {
  try {
    static_cast<void>(recipe_by_text::parse(text));
  } catch (gs::invalid_argument const& why) {
    return why.what();
  }
  return "";
}

}  // namespace

TEST_CASE("A recipe by text does what the same recipe in C++ does, bit for bit") {
  check_same_bits("radix@0.01", gs::recipe{.density = 0.01});
  check_same_bits("packed:delta,fp16+laplacian+momentum(momentum=0.5)@0.02",
                  gs::recipe{.density = 0.02,
                             .selector = gs::laplacian{},
                             .residual = gs::momentum_correction{.momentum = 0.5f},
                             .codec = gs::packed<gs::delta, gs::fp16>{}});
  check_same_bits("deft(sharing=by_layer)+packed:elias_fano,fp32@0.05",
                  gs::recipe{.density = 0.05,
                             .partitioner = gs::deft{.sharing = gs::deft_sharing::by_layer},
                             .codec = gs::packed<gs::elias_fano, gs::fp32>{}});
  check_same_bits("deft+packed:raw32,bf16@0.05",
                  gs::recipe{.density = 0.05, .partitioner = gs::deft{}, .codec = gs::packed<gs::raw32, gs::bf16>{}});
  check_same_bits(
      "sidco+packed:automatic,int4@0.05",
      gs::recipe{.density = 0.05, .selector = gs::sidco{}, .codec = gs::packed<gs::automatic, gs::int4>{}});
  check_same_bits(
      "random_k(seed=7)+packed:bitmap,qsgd@0.05",
      gs::recipe{.density = 0.05, .selector = gs::random_k{.seed = 7}, .codec = gs::packed<gs::bitmap, gs::qsgd>{}});
}

TEST_CASE("Selectors with bins, their codec, and the other exchanges") {
  check_same_bits(
      "chunked(size=64)+packed:fixed_width,sign@0.05",
      gs::recipe{
          .density = 0.05, .selector = gs::chunked{.size = 64}, .codec = gs::packed<gs::fixed_width, gs::sign>{}});
  gs::adacomp bins;
  bins.factor = 3;
  bins.bins.rules = {};
  bins.bins.rules[0] = {"a*", 20};
  check_same_bits("adacomp(bins=(a*:20,500),factor=3)+layerwise+binned+momentum@0.5",
                  gs::recipe{.density = 0.5,
                             .selector = bins,
                             .partitioner = gs::layerwise{},
                             .residual = gs::momentum_correction{},
                             .codec = gs::binned{}});
  check_same_bits("adacomp+layerwise+packed:fixed_width,ternary@1",  // no segment is sent in full
                  gs::recipe{.density = 1,
                             .selector = gs::adacomp{},
                             .partitioner = gs::layerwise{},
                             .codec = gs::packed<gs::fixed_width, gs::ternary>{}});
  check_same_bits("reduce_scatter+packed:delta,int8+on_non_finite:fail@0.05",
                  gs::recipe{.density = 0.05,
                             .codec = gs::packed<gs::delta, gs::int8>{},
                             .exchange = gs::reduce_scatter{},
                             .on_non_finite = gs::non_finite::fail});
  check_same_bits("random_k+shared_choice+passthrough(up_to=1000):@0.05",
                  gs::recipe{.density = 0.05,
                             .selector = gs::random_k{},
                             .exchange = gs::shared_choice{},
                             .passthrough = {.patterns = {}, .up_to = 1000}});
  check_same_bits("deft(cost=(fixed=100,per_element=2))@0.05",
                  gs::recipe{.density = 0.05, .partitioner = gs::deft{.cost = {.fixed = 100, .per_element = 2}}});
}

TEST_CASE("A recipe that is filled by hand is checked like one that is read") {
  gs::any_recipe<menu> made;
  made.partitioner = gs::deft{};
  made.codec = gs::codec_kind::packed;
  made.values = gs::int8{};
  std::string why;
  try {
    gs::any_compressor<menu>{gs::host{}, layers(), made};
  } catch (gs::invalid_argument const& refused) {
    why = refused.what();
  }
  CHECK(
      why ==
      "gradsieve: recipe: index_union sums values one by one: the codec is coo with it, or packed with "
      "values fp32, fp16, bf16, not int8");
  made.exchange = gs::gather{};
  gs::any_compressor<menu> const works{gs::host{}, layers(), made};
  CHECK(works.recipe().text() == "radix+deft+error_feedback+packed:automatic,int8+gather@0.01");
}

TEST_CASE("Gradients in 16 bits, in pieces, and in an overlap that is cancelled") {
  auto const recipe = recipe_by_text::parse("packed:delta,fp16@0.05");
  gs::any_compressor<menu> by_text{gs::host{}, layers(), recipe};
  gs::compressor by_type{gs::host{}, layers(), gs::recipe{.density = 0.05, .codec = gs::packed<gs::delta, gs::fp16>{}}};
  std::vector<gs::float16> a, b;
  for (float const x : gradient_of(0)) a.push_back(gs::from_float<gs::float16>(x));
  b = a;
  std::vector<gs::float16*> const pointers{b.data(), b.data() + 1000, b.data() + 1010};
  gs::any_communicator const comm{gs::self{}};
  by_type.exchange(gs::self{}, a);
  by_text.exchange(comm, gs::pieces{pointers});
  CHECK(a == b);

  gs::plan const plan{{4 * 1990, 4 * 10, 4 * 1000}, {{0, 1, 4 * 1990}, {1, 3, 4 * 1010}}};
  auto const make = [&](gs::layout const& part) { return gs::any_compressor<menu>{gs::host{}, part, recipe}; };
  gs::overlap exchange{comm, layers(), plan, make};
  auto gradient = gradient_of(1);
  CHECK(exchange
            .run(gradient,
                 [](auto const& ready) {
                   for (std::size_t const layer : {std::size_t{2}, std::size_t{1}, std::size_t{0}}) ready(layer);
                 })
            .exchanged.selected > 0);
  CHECK_THROWS_AS(exchange.run(gradient, [](auto const&) { throw 1; }), int);
}

namespace {

/// A report as text, without its times.
std::string printed(gs::step_report report) {
  report.seconds = {};
  std::ostringstream out;
  out << report;
  return out.str();
}

template <class Menu = menu, class Recipe>
void check_same_between_ranks(std::string const& text, Recipe const& recipe) {
  CAPTURE(text);
  gs::threads::run(3, [&](gs::threads::communicator_ref comm) {
    gs::any_compressor<Menu> by_text{gs::host{}, layers(), gs::any_recipe<Menu>::parse(text)};
    gs::compressor by_type{gs::host{}, layers(), recipe};
    gs::any_communicator const any{comm};
    CHECK(by_text.hash() == recipe.hash());
    for (int step = 0; step < 3; ++step) {
      auto a = gradient_of(step + 10 * comm.rank());
      auto b = a;
      if (step == 1) {
        by_text.connect(any);
        by_type.connect(comm);
      }
      CHECK(printed(by_text.exchange(any, a)) == printed(by_type.exchange(comm, b)));
      CHECK(a == b);
    }
    CHECK(by_text.step() == 3);
    CHECK(by_text.state() == by_type.state());
  });
}

}  // namespace

TEST_CASE("The same between ranks, also where values are summed in 16 bits") {
  gs::deft const deft;
  check_same_between_ranks("deft+packed:delta,fp32@0.05",
                           gs::recipe{.density = 0.05, .partitioner = deft, .codec = gs::packed<gs::delta>{}});
  check_same_between_ranks(
      "deft+packed:delta,fp16@0.05",
      gs::recipe{.density = 0.05, .partitioner = deft, .codec = gs::packed<gs::delta, gs::fp16>{}});
  check_same_between_ranks("radix+deft+momentum+packed:automatic,bf16@0.05",
                           gs::recipe{.density = 0.05,
                                      .partitioner = deft,
                                      .residual = gs::momentum_correction{},
                                      .codec = gs::packed<gs::automatic, gs::bf16>{}});
  check_same_between_ranks("index_union+chunked+packed:raw32,fp16@0.05",
                           gs::recipe{.density = 0.05,
                                      .selector = gs::chunked{},
                                      .codec = gs::packed<gs::raw32, gs::fp16>{},
                                      .exchange = gs::index_union{}});
  check_same_between_ranks(
      "index_union+packed:delta,fp32@0.05",
      gs::recipe{.density = 0.05, .codec = gs::packed<gs::delta>{}, .exchange = gs::index_union{}});
  check_same_between_ranks("packed:automatic,int4@0.05",
                           gs::recipe{.density = 0.05, .codec = gs::packed<gs::automatic, gs::int4>{}});
  check_same_between_ranks("reduce_scatter@0.05", gs::recipe{.density = 0.05, .exchange = gs::reduce_scatter{}});
  check_same_between_ranks("coded_all_reduce+laplacian+deft+packed:automatic,int2@1",
                           gs::recipe{.density = 1,
                                      .selector = gs::laplacian{},
                                      .partitioner = gs::deft{},
                                      .codec = gs::packed<gs::automatic, gs::int2>{},
                                      .exchange = gs::coded_all_reduce{}});
  check_same_between_ranks("coded_all_reduce(returned=0.5)+packed:automatic,sign@0.05",
                           gs::recipe{.density = 0.05,
                                      .codec = gs::packed<gs::automatic, gs::sign>{},
                                      .exchange = gs::coded_all_reduce{.returned = 0.5}});
}

namespace {

struct menu_without_fp32 {
  using selectors = gs::type_list<gs::radix>;
  using partitioners = gs::type_list<gs::whole>;
  using residuals = gs::type_list<gs::error_feedback>;
  using indices = gs::type_list<gs::raw32>;
  using values = gs::type_list<gs::int8, gs::fp16>;
  using exchanges = gs::type_list<gs::gather, gs::index_union>;
  using formats = gs::type_list<float>;
};

}  // namespace

TEST_CASE("coo is summed as binary32, whatever value codecs a menu has") {
  check_same_between_ranks<menu_without_fp32>("index_union@0.05",
                                              gs::recipe{.density = 0.05, .exchange = gs::index_union{}});
  check_same_between_ranks<menu_without_fp32>(
      "index_union+packed:raw32,fp16@0.05",
      gs::recipe{.density = 0.05, .codec = gs::packed<gs::raw32, gs::fp16>{}, .exchange = gs::index_union{}});
}

namespace {

struct narrow_menu : menu {
  template <class Selector, class Partitioner, class>
  static constexpr bool offers() {
    return std::is_same_v<Partitioner, gs::whole> ||
           (std::is_same_v<Selector, gs::radix> && std::is_same_v<Partitioner, gs::deft>);
  }
};

}  // namespace

TEST_CASE("A menu may offer some policies with some others only") {
  using by_name = gs::any_recipe<narrow_menu>;
  CHECK(by_name::parse("laplacian").text() == "laplacian+whole+error_feedback+coo@0.01");
  CHECK(by_name::parse("radix+deft").text() == "radix+deft+error_feedback+coo@0.01");
  CHECK_THROWS_WITH_AS(static_cast<void>(by_name::parse("laplacian+deft+momentum")),
                       "gradsieve: recipe: this program does not offer laplacian with deft and momentum_correction",
                       gs::invalid_argument);
}

TEST_CASE("Nodes by text end with the same bits, and each compressor refuses the other's ranks") {
  auto const recipe = gs::recipe{.density = 0.05, .selector = gs::laplacian{}, .partitioner = gs::deft{}};
  gs::threads::group inside[] = {gs::threads::group{2}, gs::threads::group{2}};
  gs::threads::group across[] = {gs::threads::group{2}, gs::threads::group{2}};
  gs::threads::run(4, [&](gs::threads::communicator_ref all) {
    int const node = all.rank() / 2;
    int const place = all.rank() % 2;
    gs::two_level const typed{inside[node].communicator(place), across[place].communicator(node)};
    gs::any_nodes<gs::host> const nodes{gs::any_communicator{typed.inside}, gs::any_communicator{typed.across}};
    gs::any_compressor by_text{gs::host{}, layers(), recipe_by_text::parse("laplacian+deft@0.05"), nodes};
    gs::two_level_compressor by_type{gs::host{}, layers(), recipe, typed};
    CHECK(by_text.describe() == by_type.describe());
    for (int step = 0; step < 3; ++step) {
      std::vector<gs::float16> a;
      for (float const x : gradient_of(step + 10 * all.rank())) a.push_back(gs::from_float<gs::float16>(x));
      auto b = a;
      auto const sent = by_text.exchange(nodes, a).bytes_sent;
      CHECK(sent == by_type.exchange(typed, b).bytes_sent);
      CHECK(a == b);
    }
    CHECK(by_text.state() == by_type.state());
    CHECK(by_text.residual_norm() == by_type.part_compressor().residual_norm());
    auto gradient = gradient_of(0);
    CHECK(by_text.step() == 3);
    CHECK_THROWS_WITH_AS(by_text.connect(nodes.across), doctest::Contains("for the nodes of a two_level"),
                         gs::invalid_argument);
    CHECK_THROWS_WITH_AS(by_text.exchange(nodes.across, gradient), doctest::Contains("for the nodes of a two_level"),
                         gs::invalid_argument);
    CHECK_THROWS_WITH_AS(by_text.compress(gradient), doctest::Contains("with nodes a step is an exchange"),
                         gs::invalid_argument);
    gs::any_compressor alone{gs::host{}, layers(), recipe_by_text::parse("radix")};
    CHECK_THROWS_WITH_AS(alone.exchange(nodes, gradient), doctest::Contains("for ranks that are alike"),
                         gs::invalid_argument);
  });
}

TEST_CASE("What parse() has read, text() writes, and parse() reads that the same") {
  for (std::string const text :
       {"radix", "trimmed(step=0.25)+deft(rotate_every=3,sharing=by_layer)+momentum@0.001",
        "packed:fixed_width,sign(block=64)@1", "ldte(tolerance=0.125)+packed:raw32,int4@1e-05", "radix+coo@0",
        "radix@warm_up(initial=0.5,final=0.001,steps=100,stages=4)", "radix+passthrough:<biases and norms>,head.*@0.1",
        "passthrough:+laplacian@0.1", "passthrough(up_to=7):a\\,b,c\\+d\\@\\(e\\),\\\\+on_non_finite:fail@0.5",
        "reduce_scatter@0.5", "adacomp(bins=(*conv\\,1*:50,b?:3,77),factor=2.5)+layerwise+binned+gather",
        "deft(cost=(fixed=1.5,per_selected=1e-09))", "fixed_threshold(magnitude=0.5,most=2)"}) {
    CAPTURE(text);
    auto const once = recipe_by_text::parse(text);
    CHECK(recipe_by_text::parse(once.text()) == once);
    CHECK(recipe_by_text::parse(once.text()).text() == once.text());
  }
  CHECK(recipe_by_text::parse("passthrough:a.*,b").passthrough.patterns == std::vector<std::string>{"a.*", "b"});
  CHECK(recipe_by_text::parse("passthrough:").passthrough.patterns.empty());
  auto const special = recipe_by_text::parse("passthrough(up_to=9):a\\,b,c\\+\\@d+radix").passthrough;
  CHECK(special.patterns == std::vector<std::string>{"a,b", "c+@d"});
  CHECK(special.up_to == 9);
  recipe_by_text gap{.selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = gs::codec_kind::binned};
  std::get<gs::adacomp>(gap.selector).bins.rules = {};
  std::get<gs::adacomp>(gap.selector).bins.rules[1] = {"*fc*", 30};
  CHECK(recipe_by_text::parse(gap.text()) == gap);
  recipe_by_text unnamed;
  unnamed.passthrough.patterns = {""};
  CHECK_THROWS_WITH_AS(unnamed.check(), doctest::Contains("an empty pattern of passthrough"), gs::invalid_argument);
  CHECK(recipe_by_text::parse("momentum").text() == "radix+whole+momentum_correction+coo@0.01");
  for (auto const* same : {"radix+packed:automatic,bf16@0.02", "bf16@0.02", " Radix + BF16 @ 0.02 ", "radix+bf16+automatic@0.02"})
    CHECK(recipe_by_text::parse(same).text() == "radix+whole+error_feedback+packed:automatic,bf16@0.02");
  CHECK(recipe_by_text::parse("delta").text() == "radix+whole+error_feedback+packed:delta,fp32@0.01");
  CHECK(recipe_by_text::parse("LDTE( Tolerance = 0.5 )+packed: delta , int8 @ Warm_Up( Steps = 4 )").text() ==
        recipe_by_text::parse("ldte(tolerance=0.5)+packed:delta,int8@warm_up(steps=4)").text());
  CHECK(recipe_by_text::parse("passthrough: A.*").passthrough.patterns == std::vector<std::string>{" A.*"});
}

TEST_CASE("A mistake in a recipe is answered by a sentence, with the nearest names") {
  auto const says = [](std::string const& text, std::string const& part) {
    CAPTURE(text);
    CAPTURE(why_refused(text));
    CHECK(why_refused(text).find(part) != std::string::npos);
  };
  says("radixx", "there is no 'radixx'; nearest are radix, raw32, ");
  says("", "a name is missing");
  says("radix++deft", "a name is missing");
  says("radix+coo:delta", "'coo:delta' has a colon");
  says("radix+laplacian", "two selectors are named");
  says("passthrough:a+passthrough:b", "two lists of layers that pass through are named");
  says("coo+packed:delta,fp32", "two codecs are named");
  says("packed:delta", "'packed:delta' is not packed:INDICES,VALUES");
  says("packed:delta,fp33", "there is no 'fp33'; nearest are fp32, fp16");
  says("packed:delto,fp32", "there is no 'delto'; nearest are delta, ");
  says("coo+bf16", "two codecs are named");
  says("bf16+coo", "two codecs are named");
  says("delta+packed:delta,fp32", "two codecs are named");
  says("fp32+bf16", "two value codecs are named");
  says("one_sign", "there is no 'one_sign'; nearest are sign, ");
  says("packed:delta,sbc", "there is no 'sbc'; nearest are ");  // removed
  says("momentom", "nearest are momentum, ");
  says(std::string(100'000, 'r'), "nearest are ");
  says("radix@", "density is '', expected a number");
  says("radix@0.1x", "density is '0.1x', expected a number");
  says("radix@warm_up(step=3)", "warm_up has no 'step'; it has initial, final, steps, stages");
  says("radix@warm_up(final=0.1)", "expected a number, or warm_up(");
  says("radix@warm_ups(steps=1)", "expected a number, or warm_up(");
  says("radix@warm_up(steps=1.5)", "warm_up's steps is '1.5', expected a whole number");
  says("radix@warm_up(steps=1,initial=2)", "warm-up runs from density 2 to 0.01");
  says("radix@2", "density is 2, expected 0 to 1");
  says("radix@nan", "density is nan");
  says("ldte(tolerance=-1)", "ldte's tolerance is -1");
  says("ldte(tolerance=1,tolerance=1)", "has 'tolerance' twice");
  says("radix@warm_up(steps=3,steps=4)", "warm_up has 'steps' twice");
  says("passthrough(up_to=1,up_to=2):a", "passthrough has 'up_to' twice");
  says("ldte(tolerance=1e39)", "ldte's tolerance is '1e39', which is out of range");
  says("chunked(size=4294967296)", "chunked's size is '4294967296', which is out of range");
  says("radix@1e999", "density is '1e999', which is out of range");
  says("adacomp(bins=(a:0,5))+layerwise", "adacomp's bins has the length 0 for 'a'");
  says(std::string{"adacomp(bins=(a\0b:5,5))+layerwise", 33}, "has a pattern with a character 0");
  says("ldte(toleranz=1)", "ldte has no 'toleranz'; it has tolerance");
  says("radix(a=1)", "radix has no 'a'; it has ");
  says("ldte(tolerance)", "is not an option: write field=value");
  says("ldte(tolerance=1", "lacks a ')'");
  says("ldte)", "was not opened");
  says("ldte(tolerance=1)x", "has text after its ')'");
  says("random_k(seed=1.5)", "expected a whole number");
  says("random_k(seed=-1)", "expected a whole number");
  says("deft(sharing=none)", "expected one of by_");
  says("deft+packed:delta,int8",
       "index_union sums values one by one: the codec is coo with it, or packed with values fp32, fp16, "
       "bf16, not int8");
  says("cyclic", "there is no 'cyclic'");  // not on this menu
  says("gather+leader", "two exchanges are named");
  says("on_non_finite:stop", "on_non_finite is 'stop', expected one of skip, fail");
  says("on_non_finite:skip+on_non_finite:fail", "two values of on_non_finite");
  says("passthrough(size=1):a", "passthrough has no 'size'; it has up_to");
  says("passthrough", "there is no 'passthrough'; nearest are passthrough:, ");
  says("radix:x", "'radix:x' has a colon");
  says("radix\\", "ends with a backslash");
  says("deft(cost=3)", "deft's cost is '3', expected (field=value,...)");
  says("deft(cost=(fixd=3))", "deft's cost has no 'fixd'; it has fixed, per_element, per_selected");
  says("adacomp(bins=5)+layerwise", "adacomp's bins is '5', expected (pattern:length,...,length)");
  says("adacomp(bins=(a,5))+layerwise", "expected (pattern:length,...,length)");
  says("adacomp(bins=(a:0.5,5))+layerwise", "adacomp's bins is '0.5', expected a whole number");
  says("adacomp(bins=(0))+layerwise", "a bin's length is 0, expected 1 to 16383");
  says("adacomp", "adacomp's bins do not cross layers: it needs a partitioner whose segments lie within layers");
  says("chunked+deft", "chunked has bins and chooses in the accumulate pass: it needs a partitioner without norms");
  says("binned", "binned writes places in the selector's bins: it needs a selector that has bins");
  says("leader", "leader is for one rank's choice: it needs a partitioner by which one rank selects in a step");
  says("shared_choice", "shared_choice sums what all ranks have chosen alike");
}

TEST_CASE("parameters: exchanged by a recipe of text with the same bits, and not with a store of several states") {
  std::vector<float> own(3000, 1.0f);
  auto other = own;
  auto const recipe = gs::recipe{.density = 0.02, .selector = gs::laplacian{}};
  gs::parameter_exchange by_text{
      gs::any_compressor<menu>{gs::host{}, layers(), recipe_by_text::parse("laplacian@0.02")}, std::span{own}};
  gs::parameter_exchange by_type{gs::compressor{gs::host{}, layers(), recipe}, std::span{other}};
  gs::any_communicator const comm{gs::self{}};
  for (int step = 0; step < 3; ++step) {
    auto const change = gradient_of(step);
    for (std::size_t i = 0; i < own.size(); ++i) {
      own[i] += change[i];
      other[i] += change[i];
    }
    by_text.exchange_parameters(comm, own);
    by_type.exchange_parameters(gs::self{}, other);
    CHECK(own == other);
  }
  CHECK(by_text.state() == by_type.state());
  CHECK(own != std::vector<float>(by_text.common().begin(), by_text.common().end()));
  gs::any_compressor<menu> with{gs::host{}, layers(), recipe_by_text::parse("momentum_correction@0.02")};
  CHECK_THROWS_WITH_AS((gs::parameter_exchange{std::move(with), std::span{own}}),
                       doctest::Contains("'momentum_correction' keeps several states"), gs::invalid_argument);
  gs::any_compressor<menu> shards{gs::host{}, layers(), recipe_by_text::parse("radix+reduce_scatter@0.02")};
  CHECK_THROWS_WITH_AS((gs::parameter_exchange{std::move(shards), std::span{own}}),
                       doctest::Contains("reduce_scatter leaves each rank a shard"), gs::invalid_argument);
}

TEST_CASE("A compressor that was moved from throws") {
  gs::any_compressor<menu> first{gs::host{}, layers(), recipe_by_text::parse("radix@0.02")};
  auto const second = std::move(first);
  CHECK_THROWS_WITH_AS(static_cast<void>(first.residual_norm()),  // NOLINT(bugprone-use-after-move)
                       "gradsieve: this compressor was moved from", gs::invalid_argument);
  CHECK_THROWS_AS(first.discard_step(), gs::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(first.recipe()), gs::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(first.hash()), gs::invalid_argument);
  CHECK(second.layers() == layers());
  gs::any_communicator ranks{gs::self{}};
  auto const moved = std::move(ranks);
  CHECK(ranks.size() == 1);  // a move copies
  CHECK_THROWS_WITH_AS(gs::any_communicator{std::shared_ptr<gs::any_communicator::transport const>{}},
                       doctest::Contains("no transport"), gs::invalid_argument);
}

TEST_CASE("The C interface has a status for each exception of a host") {
  auto const status = [](auto const& exception) { return c_interface::guarded([&] { throw exception; }); };
  CHECK(status(gs::invalid_argument("")) == GRADSIEVE_INVALID_ARGUMENT);
  CHECK(status(gs::mismatch("")) == GRADSIEVE_MISMATCH);
  CHECK(status(gs::corrupt_message("")) == GRADSIEVE_CORRUPT);
  CHECK(status(gs::corrupt_state("")) == GRADSIEVE_CORRUPT);
  CHECK(status(gs::communication_error("")) == GRADSIEVE_COMMUNICATION);
  CHECK(status(gs::non_finite_gradient("")) == GRADSIEVE_NON_FINITE);
  CHECK(status(std::bad_alloc{}) == GRADSIEVE_NO_MEMORY);
  CHECK(status(std::logic_error("of a callback")) == GRADSIEVE_OTHER);
  CHECK(c_interface::last_error == "of a callback");
}
