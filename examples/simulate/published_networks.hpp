// Networks with published measurements, by name.
#pragma once

#include <array>
#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <gradsieve/core/error.hpp>
#include <gradsieve/plan/collectives.hpp>

namespace tools {

using namespace gradsieve;

/// The cost of an all-reduce for each number of workers: measured if available, otherwise computed from a link.
struct network {
  /// A measured cost.
  struct measured {
    int workers = 0;  ///< 0: no point
    affine cost;      ///< of an all-reduce
  };
  /// The algorithm whose cost is computed from a link.
  enum class algorithm {
    ring,        ///< ring_cost()
    double_tree  ///< double_tree_cost()
  };

  std::string_view name;               ///< its name for network_named()
  std::string_view source;             ///< the source of the figures
  algorithm beyond = algorithm::ring;  ///< for numbers of workers that were not measured
  network_link link;                   ///< likewise
  std::array<measured, 6> points{};    ///< measured costs

  /// The cost of an all-reduce of this many workers. @throws invalid_argument unless workers >= 1.
  [[nodiscard]] affine cost(int workers) const {
    for (auto const& each : points)
      if (each.workers == workers && workers > 1) return each.cost;
    return beyond == algorithm::ring ? ring_cost(link, workers) : double_tree_cost(link, workers);
  }
};

namespace parts {

// Measured all-reduces, as published with MG-WFBP: up to 4 workers within a node, 4 workers a node.
inline constexpr std::array<network::measured, 6> v100_10gbe{
    {{2, {2.55e-6, 9.84e-11}}, {4, {4.20e-5, 2.06e-10}}, {8, {5.23e-4, 8.57e-10}}, {16, {9.08e-4, 7.40e-10}}}};
inline constexpr std::array<network::measured, 6> v100_56gib{
    {{2, {2.55e-6, 9.84e-11}}, {4, {4.20e-5, 2.06e-10}}, {8, {9.75e-5, 3.06e-10}}, {16, {2.36e-4, 4.06e-10}}}};

}  // namespace parts

/// The networks that `network_named` knows.
[[nodiscard]] inline std::span<network const> networks() {
  using enum network::algorithm;
  using parts::v100_10gbe, parts::v100_56gib;
  static std::array const all{
      network{"infocom-ring",
              "MG-WFBP (INFOCOM 2019), simulator of K80 nodes on 10 Gbit/s Ethernet",
              ring,
              network_link{45.25e-6, 1.2 * 8 / (9.0 * (1 << 30)), 2.5e-9},
              {}},
      network{"k80-10gbe",
              "MG-WFBP (INFOCOM 2019), per-layer all-reduces in training on 8 K80 nodes",
              ring,
              link_of_ring({1.5e-3, 3.75e-9}, 8),
              {{{8, {1.5e-3, 3.75e-9}}}}},
      network{"v100-10gbe", "MG-WFBP (TPDS 2021), V100 on 10 Gbit/s Ethernet; ring from 16 workers on", ring,
              link_of_ring(v100_10gbe[3].cost, 16), v100_10gbe},
      network{"v100-10gbe-tree", "the same; double tree from 16 workers on", double_tree,
              link_of_double_tree(v100_10gbe[3].cost, 16), v100_10gbe},
      network{"v100-56gib", "MG-WFBP (TPDS 2021), V100 on 56 Gbit/s InfiniBand; ring from 16 workers on", ring,
              link_of_ring(v100_56gib[3].cost, 16), v100_56gib},
      network{"v100-56gib-tree", "the same; double tree from 16 workers on", double_tree,
              link_of_double_tree(v100_56gib[3].cost, 16), v100_56gib},
      network{"1gbe", "gTop-k (ICDCS 2019), 1 Gbit/s Ethernet", ring, network_link{0.436e-3, 9e-9, 0}, {}},
  };
  return all;
}

/// A network by its name, or a ring over a link `ALPHA,BETA`: seconds per message, seconds per byte. @throws
/// invalid_argument that lists the names.
[[nodiscard]] inline network network_named(std::string_view text) {
  for (auto const& each : networks())
    if (each.name == text) return each;
  if (auto const comma = text.find(','); comma != std::string_view::npos) {
    network made{text, "given", network::algorithm::ring, {}, {}};
    auto const read = [](std::string_view digits, double& value) {
      auto const [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return problem == std::errc{} && end == digits.data() + digits.size();
    };
    if (read(text.substr(0, comma), made.link.alpha) && read(text.substr(comma + 1), made.link.beta)) {
      made.link.check();
      return made;
    }
  }
  std::string known;
  for (auto const& each : networks()) known += (known.empty() ? "" : ", ") + std::string{each.name};
  throw invalid_argument("gradsieve: network '" + std::string{text} + "': choose one of " + known +
                         ", or ALPHA,BETA in seconds a message and seconds a byte");
}

}  // namespace tools
