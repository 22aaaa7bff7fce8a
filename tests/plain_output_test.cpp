// What is written for machines is the same, and is read the same, whatever the locale and the stream's settings are.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <ios>
#include <locale>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/plan.hpp>
#include <gradsieve/run_time.hpp>

#include "../examples/advise/advise.hpp"
#include "../examples/advise/exchange_choice.hpp"
#include "../examples/simulate/chrome_trace.hpp"
#include "../examples/simulate/networks.hpp"
#include "../examples/simulate/simulate.hpp"
#include "../examples/simulate/timeline.hpp"
#include "../examples/simulate/traces.hpp"
#include "../examples/train/report.hpp"

namespace gs = gradsieve;

namespace {

/// Groups of three digits with points between, a decimal comma, and German words for the truth.
struct german : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
  [[nodiscard]] std::string do_truename() const override { return "wahr"; }
};

/// The program's locale, for as long as it lives.
struct hostile_program {
  std::locale before = std::locale::global(std::locale{std::locale::classic(), new german});
  hostile_program() = default;
  ~hostile_program() { std::locale::global(before); }
  hostile_program(hostile_program const&) = delete;
  hostile_program& operator=(hostile_program const&) = delete;
};

void make_hostile(std::ostream& out) {
  out << std::hex << std::showbase << std::showpos << std::uppercase << std::scientific << std::boolalpha
      << std::setprecision(2) << std::left << std::setfill('*') << std::setw(60);
}

gs::trace const layers{{{"a", 12345678, 0.0012345678, 0.25, 1234}, {"b, \"c\"", 4000, 1e-9, 12345.5, 0}}, "1 a"};
gs::affine const cost{1234.5e-6, 1.25e-9};
gs::plan const planned = gs::make_plan(layers, cost, gs::wfbp{});

gs::step_report report() {
  gs::step_report it;
  it.step = 12345;
  it.selected = 1234567;
  it.bytes_sent = 98765432;
  it.saturated = 1000;
  it.message.index_codec = "delta";
  it.message.of(5000).elements = 100000;
  it.message.of(5000).bytes = 1234.5;
  it.seconds.exchange = 12.3456;
  return it;
}

std::vector<example::result> results() {
  example::result it;
  it.recipe = "radix";
  it.workers = 1024;
  it.density = 0.0125;
  it.loss = 1234.5;
  it.sent = 1234567.5;
  it.thresholds.probes = 12345;
  it.curve.push_back({1234.25, 1e6, 0.5});
  it.predicted.groups = 1234;
  return {it};
}

struct writer {
  std::string name;
  std::function<void(std::ostream&)> write;
};

/// All that the library and its examples write for machines.
std::vector<writer> writers() {
  auto const printed = [](auto const& it) { return [it](std::ostream& out) { out << it; }; };
  gs::recipe const recipe{.density = gs::warm_up{0.25, 0.0125, 12345, 1000},
                          .selector = gs::adacomp{},
                          .partitioner = gs::layerwise{},
                          .residual = gs::momentum_correction{.momentum = 0.875f}};
  return {
      {"write_csv", [](std::ostream& out) { gs::write_csv(out, layers); }},
      {"write_json", [](std::ostream& out) { gs::write_json(out, layers); }},
      {"write_chrome_trace",
       [](std::ostream& out) {
         tools::write_chrome_trace(out, tools::simulate(layers, planned, cost, {.iterations = 1100}), layers, planned, 12345);
       }},
      {"recipe", printed(recipe)},
      {"policy", printed(gs::random_k{.seed = 1234567})},
      {"packed", printed(gs::packed<gs::fixed_width, gs::sign>{.indices = {.chunk = 4096}, .values = {.block = 2048}})},
      {"any policy", printed(gs::any_selector<gs::ldte>{{gs::ldte{.tolerance = 0.125f}}})},
      {"recipe as text",
       [](std::ostream& out) {
         out.width(0);
         out << gs::any_recipe<>::parse("random_k(seed=1234567)+deft(rotate_every=12345)+packed:raw32,fp16@0.0125")
                    .text();
       }},
      {"density", printed(gs::density_schedule{0.0125})},
      {"density", printed(gs::density_schedule{gs::warm_up{.initial = 0.25, .steps = 123456}})},
      {"report", printed(report())},
      {"breakdown", printed(report().message)},
      {"plan", printed(planned)},
      {"cost", printed(cost)},
      {"fit", printed(gs::fit_affine({{1000, 1.5}, {2000, 2.75}, {3000, 4.25}}))},
      {"selection cost", printed(gs::selection_cost{1234.5, 0.25, 0.5})},
      {"metrics", printed(tools::schedule_metrics{.workers = 12345, .iteration = 1234.5})},
      {"planner", printed(gs::fixed_bucket{.first = 123456})},
      {"passthrough", printed(gs::passthrough_layers{.up_to = 12345})},
      {"bins", printed(gs::bin_lengths{.rules = {{{"*", 12345}}}})},
      {"interval", printed(gs::between(-1234.5, 1e6))},
      {"an error",
       [](std::ostream& out) {
         try {
           gs::require_between("number", 1234567.5, 0, 1000);
         } catch (gs::invalid_argument const& why) {
           out.width(0);
           out << why.what();
         }
       }},
      {"advice",
       [](std::ostream& out) {
         auto const menu = tools::usual_choices(0.001);
         out.width(0);
         out << tools::advise(gs::layout::flat(123456789), 1024, {1e-3, 8e-6}, std::span{menu}).sentence;
       }},
      {"train --csv", [](std::ostream& out) { example::write_csv(out, results(), 12345); }},
      {"train --curves", [](std::ostream& out) { example::write_curves(out, results()); }},
      {"train's table", [](std::ostream& out) { example::print_results(out, results()); }},
      {"train --accumulators",
       [](std::ostream& out) {
         out.width(0);
         out << example::trace_rows::accumulator_columns();
       }},
      {"usage error",
       [](std::ostream& out) {
         try {
           static_cast<void>(example::number("--workers", "x", 1, 1 << 20));
         } catch (example::usage_error const& why) {
           out.width(0);
           out << why.what();
         }
       }},
  };
}

std::string plainly(writer const& by) {
  std::ostringstream out;
  by.write(out);
  return out.str();
}

/// The file's text, read under a hostile locale.
template <class Read>
void reads_the_same(std::string const& name, std::string const& text, Read const& read) {
  CAPTURE(name);
  auto const path =
      std::filesystem::temp_directory_path() / ("gradsieve_plain_output_" + std::to_string(getpid()) + name);
  std::ofstream{path, std::ios::binary} << text;
  auto const plain = read(path);
  {
    hostile_program const hostile;
    CHECK(read(path) == plain);
  }
  std::filesystem::remove(path);
}

}  // namespace

TEST_CASE("what is written for machines does not depend on locales and flags, and leaves them as they were") {
  for (auto const& each : writers()) {
    CAPTURE(each.name);
    auto const plain = plainly(each);
    CHECK(plain.size() > 3);

    hostile_program const hostile;
    CHECK(plainly(each) == plain);  // the stream has the program's locale
    std::ostringstream out;
    make_hostile(out);
    auto const flags = out.flags();
    each.write(out);
    CHECK(out.str() == plain);
    CHECK(out.flags() == flags);
    CHECK(out.precision() == 2);
    CHECK(out.fill() == '*');
    CHECK(out.getloc() == std::locale{});
  }
}

TEST_CASE("the JSON of a timeline has no number that JSON has not") {
  hostile_program const hostile;
  for (auto const& each : writers()) {
    if (each.name != "write_chrome_trace" && each.name != "write_json") continue;
    std::ostringstream out;
    make_hostile(out);
    each.write(out);
    auto const read = simulation::json_reader::read(out.str());
    CHECK(read.is == simulation::json::type::object);
  }
}

TEST_CASE("files are read the same") {
  auto const text_of = [](auto const& write) {
    std::ostringstream out;
    write(out, layers);
    return out.str();
  };
  auto const load = [](auto const& path) { return simulation::load(path.string(), {}); };
  reads_the_same("a.csv", text_of([](auto& out, auto const& of) { gs::write_csv(out, of); }), load);
  reads_the_same("a.json", text_of([](auto& out, auto const& of) { gs::write_json(out, of); }), load);
  reads_the_same("a.log", "[0, 12345, 1234.5, 0, 0]\n[1, 64, 0.25, 0, 0]\n", [](auto const& path) {
    std::ifstream in{path};
    in >> std::hex >> std::boolalpha;
    return gs::read_mgwfbp_log(in, "log");
  });
  auto const measured = [](auto const& path) { return simulation::network_reader::read(path).measured; };
  reads_the_same("b.csv", "bytes,seconds\n4000,0.0012345\n8000,1234.5\n", measured);
  reads_the_same("osu", "# Size Avg Latency(us)\n4000 1234.5\n8000 12345.25\n", measured);

  auto const parsed = gs::any_recipe<>::parse("ldte(tolerance=0.125)@0.0125");
  auto const network = tools::network_named("1.5e-5,0.25");
  auto const number = example::number("--density", "0.25", 0.0, 1.0);
  hostile_program const hostile;
  CHECK(gs::any_recipe<>::parse("ldte(tolerance=0.125)@0.0125") == parsed);
  CHECK(tools::network_named("1.5e-5,0.25").link == network.link);
  CHECK(example::number("--density", "0.25", 0.0, 1.0) == number);
}
