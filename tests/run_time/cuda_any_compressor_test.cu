// Recipes by text on a device: the bits of the recipe written in C++, of the host, and sentences for the rest.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <gradsieve/run_time.cuh>

#include "gpu.cuh"
#include "nodes.hpp"

using namespace gpu;

namespace {

struct on_host : gs::gather {
  static constexpr char const* name = "on_host";
};

struct values_on_host : gs::ternary {
  static constexpr char const* name = "values_on_host";
  static constexpr std::uint16_t id = 32768;
};

// Short, as each selector, residual store and kind of partitioner is compiled.
struct menu {
  using selectors = gs::type_list<gs::radix, gs::random_k, gs::chunked>;
  using partitioners = gs::type_list<gs::whole, gs::layerwise, gs::deft, gs::cyclic>;
  using residuals = gs::type_list<gs::error_feedback>;
  using indices = gs::type_list<gs::automatic, gs::raw32, gs::delta, gs::elias_fano>;
  using values = gs::type_list<gs::fp32, gs::fp16, values_on_host>;
  using exchanges =
      gs::type_list<gs::gather, gs::index_union, gs::leader, gs::shared_choice, gs::coded_all_reduce, on_host>;
  using formats = gs::type_list<float, gs::float16>;

  template <class Selector, class Partitioner, class>
  static constexpr bool offers() {
    return std::is_same_v<Selector, gs::radix> || std::is_same_v<Partitioner, gs::whole>;
  }
};
using by_name = gs::any_recipe<menu>;
using any_ranks = gs::any_communicator_of<gs::device>;

auto const layers = steps::mixed_layers();
auto const n = layers.size();

/// Whether the mean of its own message is what it says.
template <class Compressor>
bool applies_own_message(Compressor& by, gs::device const& where) {
  array<float> const a{where, n}, b{where, n};
  a.put(steps::gradient(n, 0, 9));
  std::span const message = by.encode(by.compress(a.span()));
  std::span const all{&message, 1};
  auto const applied = by.apply(all, b.span());
  gs::averager mean{where, layers, by.recipe().coded()};
  return applied.entries > 0 && mean.apply(all, a.span()).entries == applied.entries &&
         steps::same_bits(a.get(), b.get());
}

/// The recipe by text on a device, in C++ on a device, and, unless they differ, by text on the host, step by step.
template <class T, class Recipe>
void same_bits(std::string const& text, Recipe const& recipe, int ranks, bool as_on_host = true) {
  CAPTURE(text);
  auto const said = steps::on_ranks(ranks, [&](steps::communicator comm) {
    stream const own;
    gs::device const where{own};
    any_ranks const any{gs::staged{comm}};
    gs::any_compressor by_text{where, layers, by_name::parse(text)};
    gs::any_compressor on_host{gs::host{.threads = 1}, layers, by_name::parse(text)};
    gs::compressor by_type{where, layers, recipe};
    array<T> const a{where, n}, b{where, n};
    steps::findings found;
    found.expect(by_text.hash() == recipe.hash(), "hash");
    found.expect(by_text.describe() == by_type.describe(), "description");
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto expected = data::as<T>(steps::gradient(n, comm.rank(), step));
      a.put(expected);
      b.put(expected);
      gs::step_report const report = by_text.exchange(any, a.span());
      gs::step_report const typed = by_type.exchange(gs::staged{comm}, b.span());
      on_host.exchange(gs::any_communicator{comm}, expected);
      found.expect(steps::same_bits(a.get(), b.get()), "update");
      found.expect(!as_on_host || steps::same_bits(b.get(), expected), "the host's update");
      found.expect(report.bytes_sent == typed.bytes_sent && report.selected == typed.selected && report.staged,
                   "report");
    }
    found.expect(by_text.state() == by_type.state(), "state");
    by_text.connect(any);
    found.expect(by_text.step() == 4, "number of steps");
    if (by_text.recipe().chosen_exchange() == by_name{}.chosen_exchange()) found.expect(applies_own_message(by_text, where), "apply()");
    return found.text();
  });
  for (auto const& each : said) CHECK(each == "");
}

std::string why_refused(std::string const& text) {
  try {
    static_cast<void>(gs::any_compressor{gs::device{}, gs::layout::flat(10), by_name::parse(text)});
  } catch (gs::invalid_argument const& why) {
    return why.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a recipe by text does on a device what the same recipe in C++ does, bit for bit") {
  same_bits<float>("radix+packed:elias_fano,fp16@0.03",
                   gs::recipe{.density = 0.03, .codec = gs::packed<gs::elias_fano, gs::fp16>{}}, 2);
  same_bits<gs::float16>("layerwise+index_union@0.03",
                         gs::recipe{.density = 0.03, .partitioner = gs::layerwise{}, .exchange = gs::index_union{}}, 2);
  same_bits<float>("deft@0.03", gs::recipe{.density = 0.03, .partitioner = gs::deft{}}, 3);
  same_bits<float>("cyclic+packed:raw32,fp32@0.03",
                   gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}, .codec = gs::packed<gs::raw32>{}}, 2);
  same_bits<float>("radix+coded_all_reduce(returned=8)+packed:elias_fano,fp16@0.03",
                   gs::recipe{.density = 0.03,
                              .codec = gs::packed<gs::elias_fano, gs::fp16>{},
                              .exchange = gs::coded_all_reduce{.returned = 8}},
                   3);
  same_bits<float>("chunked(size=64)@0.05", gs::recipe{.density = 0.05, .selector = gs::chunked{.size = 64}}, 2);
}

TEST_CASE("a recipe by text sums 16-bit values on a device as the recipe in C++ does") {
  gs::packed<gs::raw32, gs::fp16> const codec;
  bool const as_on_host = false;  // short layers are sent in full, and on a device rounded
  same_bits<float>("deft+packed:raw32,fp16@0.03",
                   gs::recipe{.density = 0.03, .partitioner = gs::deft{}, .codec = codec}, 3, as_on_host);
  same_bits<float>("index_union+packed:raw32,fp16@0.03",
                   gs::recipe{.density = 0.03, .codec = codec, .exchange = gs::index_union{}}, 2);
  same_bits<gs::float16>("cyclic+packed:raw32,fp16@0.03",
                         gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}, .codec = codec}, 2);
  same_bits<float>(
      "random_k+shared_choice+packed:raw32,fp16@0.03",
      gs::recipe{.density = 0.03, .selector = gs::random_k{}, .codec = codec, .exchange = gs::shared_choice{}}, 2);
}

TEST_CASE("a recipe by text on a device's nodes ends with the host's bits") {
  auto const recipe = by_name::parse("radix+packed:elias_fano,fp32@0.03");
  auto const said = nodes::run({2, 2}, [&](nodes::pair const& ranks) {
    stream const own;
    gs::device const where{own};
    gs::any_nodes<gs::device> const staged{any_ranks{gs::staged{ranks.inside}}, any_ranks{gs::staged{ranks.across}}};
    gs::any_compressor device{where, layers, recipe, staged};
    gs::two_level_compressor host{
        gs::host{.threads = 1}, layers,
        gs::recipe{.density = 0.03, .codec = gs::packed<gs::elias_fano>{}}, ranks};
    array<float> const gradient{where, n};
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto expected = steps::gradient(n, ranks.rank(), step);
      gradient.put(expected);
      gs::step_report const report = device.exchange(staged, gradient.span());
      auto const of_host = host.exchange(ranks, expected);
      if (!steps::same_bits(gradient.get(), expected) || report.union_size != of_host.union_size)
        throw gs::mismatch("step " + std::to_string(step));
    }
  });
  CHECK(nodes::text(said) == "");
}

TEST_CASE("what does not run on a device is refused by its name") {
  auto const says = [](std::string const& text, std::string const& part) {
    CAPTURE(text);
    CAPTURE(why_refused(text));
    CHECK(why_refused(text).find(part) != std::string::npos);
  };
  says("packed:delta,fp32", "delta does not run on a device, where messages have a fixed size");
  says("packed:raw32,values_on_host", "values_on_host does not run on a device");
  says("on_host", "on_host does not run on a device");
  says("chunked+binned", "binned does not run on a device");
  says("deft+packed:elias_fano,fp32", "packed with raw32 and fp32, fp16 or bf16, not packed:elias_fano,fp32");
  says("chunked+cyclic", "does not offer chunked with cyclic and error_feedback");
}
