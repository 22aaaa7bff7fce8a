// What the command line chooses. A number is whole, and written 4096, 1e6 or 2^20; a list has commas.
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "rows.hpp"

namespace bench {
namespace {

constexpr std::uint64_t most_elements = (std::uint64_t{1} << 30) - 1;

constexpr char const* usage = R"(gradsieve_bench [options] [Google Benchmark's options]

Without a list: the questions of the report card. --n and --threads with one value apply to all of its rows.
  --full            sweeps n from 2^12 to 2^27, all densities, selectors, laws, formats, and one thread: about 40 minutes
  --peers           the same job in other ways: std::nth_element, a sort, libtorch, the published selectors
  --n=LIST          elements, 1 to 2^30 - 1 [2^25]
  --threads=LIST    [all]
  --seconds=S       that a row is measured for [1]
With --density, --k, --selector, --recipe, or more than one value of --n or --threads: a grid of whole steps, and with --peers of
selection alone and of the peers, too.
  --density=LIST    k / n, in (0, 1] [0.001]
  --k=LIST          entries, in place of --density
  --selector=LIST   of radix, laplacian, laplacian_exact, hierarchical, chunked, ldte, sidco, trimmed,
                    threshold_search; or all [radix]
  --recipe=LIST     recipes as text, by semicolon, without a density: whole exchanges of one rank, messages included.
                    --recipe="laplacian+deft+packed:delta,fp16;random_k+shared_choice"
A header of your own policies, -DGRADSIEVE_BENCH_POLICIES=mine.hpp in CMake, adds rows to every grid: see own.cpp.
Numbers are written 4096, 1e6 or 2^20. Examples:
  gradsieve_bench --n=2^12,2^16,2^20,6553600 --density=0.001,0.01,0.1 --threads=1,2
  gradsieve_bench --n=1e6 --k=100,1000 --selector=radix,laplacian --peers

)";

[[noreturn]] void refuse(std::string const& option, std::string_view value, char const* wanted) {
  throw std::invalid_argument{option + "=" + std::string{value} + ": " + wanted};
}

/// All of the text as a number.
template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// 4096, 1e6 or 2^20.
std::optional<std::uint64_t> whole_number(std::string_view text) {
  auto const sign = text.find('^');
  if (sign != std::string_view::npos) {
    auto const base = number<std::uint64_t>(text.substr(0, sign));
    auto const power = number<unsigned>(text.substr(sign + 1));
    if (!base || !power) return std::nullopt;
    double const value = std::pow(static_cast<double>(*base), *power);
    if (!(value <= 0x1p53)) return std::nullopt;
    return static_cast<std::uint64_t>(value);
  }
  if (auto const plain = number<std::uint64_t>(text)) return plain;
  auto const value = number<double>(text);
  if (!value || !(*value >= 0 && *value <= 0x1p53) || *value != std::floor(*value)) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

/// Calls each(item) for the items of a list.
template <class Each>
void for_each_item(std::string const& option, std::string_view list, Each const& each) {
  for (std::string_view rest = list;;) {
    auto const comma = rest.find(',');
    auto const item = rest.substr(0, comma);
    if (item.empty()) refuse(option, list, "an empty item");
    each(item);
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<std::uint64_t> counts(std::string const& option, std::string_view list, std::uint64_t most) {
  std::vector<std::uint64_t> values;
  for_each_item(option, list, [&](std::string_view item) {
    auto const value = whole_number(item);
    if (!value || *value < 1 || *value > most)
      refuse(option, list, ("needs whole numbers from 1 to " + std::to_string(most)).c_str());
    values.push_back(*value);
  });
  return values;
}

double positive(std::string const& option, std::string_view text, bool zero_too, double most) {
  auto const value = number<double>(text);
  if (!value || !(*value > 0 || (zero_too && *value == 0)) || !(*value <= most))
    refuse(option, text, most == 1 ? "needs numbers above 0, at most 1" : "needs seconds from 0 to 1e6");
  return *value;
}

void take(options& chosen, std::string const& option, std::string_view value) {
  if (option == "--n") {
    chosen.sizes = counts(option, value, most_elements);
  } else if (option == "--threads") {
    chosen.thread_counts.clear();
    for (auto const count : counts(option, value, 4096)) chosen.thread_counts.push_back(static_cast<int>(count));
  } else if (option == "--seconds") {
    chosen.seconds = positive(option, value, true, 1e6);
  } else if (option == "--density") {
    for_each_item(option, value,
                  [&](std::string_view item) { chosen.densities.push_back(positive(option, item, false, 1)); });
  } else if (option == "--k") {
    chosen.ks = counts(option, value, most_elements);
  } else if (option == "--selector") {
    for_each_item(option, value, [&](std::string_view item) {
      if (item != "all" && !is_selector(item))
        refuse(option, value,
               "needs radix, laplacian, laplacian_exact, hierarchical, chunked, ldte, sidco, trimmed, "
               "threshold_search, or all");
      chosen.selectors.emplace_back(item);
    });
  } else if (option == "--recipe") {
    for (std::string_view rest = value;;) {
      auto const end = rest.find(';');
      chosen.recipes.emplace_back(rest.substr(0, end));
      if (chosen.recipes.back().empty()) refuse(option, value, "an empty recipe");
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
    }
  }
}

bool is_own(std::string const& option) {
  for (auto const* own : {"--n", "--threads", "--seconds", "--density", "--k", "--selector", "--recipe"})
    if (option == own) return true;
  return false;
}

}  // namespace

void print_usage() { std::cout << usage; }

options parse_command_line(int argc, char** argv, std::vector<char*>& others) {
  options chosen;
  for (int i = 0; i < argc; ++i) {
    std::string const argument = argv[i];
    auto const equals = argument.find('=');
    auto const option = argument.substr(0, equals);
    if (argument == "--full")
      chosen.full = true;
    else if (argument == "--peers")
      chosen.peers = true;
    else if (!is_own(option))
      others.push_back(argv[i]);
    else if (equals == std::string::npos)
      throw std::invalid_argument{option + " needs a value: " + option + "=..."};
    else
      take(chosen, option, std::string_view{argument}.substr(equals + 1));
  }
  for (int& count : chosen.thread_counts) count = gs::detail::host_team{count}.size();
  chosen.n = chosen.sizes.back();
  chosen.threads = chosen.thread_counts.back();
  if (!chosen.densities.empty() && !chosen.ks.empty()) throw std::invalid_argument{"either --density or --k"};
  if (chosen.is_grid() && chosen.full) throw std::invalid_argument{"--full is a sweep of its own: no lists beside it"};
  for (auto const k : chosen.ks)
    for (auto const n : chosen.sizes)
      if (k > n) throw std::invalid_argument{"--k=" + std::to_string(k) + " is more than --n=" + std::to_string(n)};
  return chosen;
}

}  // namespace bench
