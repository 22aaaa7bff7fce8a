// Groups of gradients that are exchanged together, in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/core/wire.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Layers [begin, end) of a trace, exchanged by one collective. Layers without bytes belong to a neighbour's group.
struct plan_group {
  std::size_t begin = 0;    ///< the first layer
  std::size_t end = 0;      ///< after the last layer
  std::uint64_t bytes = 0;  ///< of all its layers
  double start = 0;         ///< predicted, in seconds from the start of the backward pass
  double finish = 0;        ///< predicted likewise
  friend bool operator==(plan_group const&, plan_group const&) = default;
};

/// The position of a layer's gradient: the group whose buffer holds it, and the offset in that buffer.
struct plan_slot {
  std::size_t group = 0;     ///< number of the group
  std::uint64_t offset = 0;  ///< in its buffer, in bytes
  friend bool operator==(plan_slot const&, plan_slot const&) = default;
};

/// The layers of a trace, divided into consecutive groups that all ranks issue in this order. Plans that ranks make
/// separately may differ by a rounding; let one rank plan and call agree() on all ranks.
class plan {
 public:
  /// No layers and no groups.
  plan() = default;

  /// A plan with these groups; see make_plan() for one that is computed. @throws invalid_argument unless the groups
  /// follow each other from layer 0 to the last, each has a layer, their bytes are those of their layers, and predicted
  /// times are finite, not negative and start <= finish.
  plan(std::vector<std::uint64_t> layer_bytes, std::vector<plan_group> groups,
       std::optional<double> certificate = std::nullopt)
      : bytes_{std::move(layer_bytes)}, groups_{std::move(groups)}, certificate_{certificate} {
    slots_.reserve(bytes_.size());
    std::size_t at = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      auto const& each = groups_[g];
      auto const name = "group " + std::to_string(g) + " of a plan";
      if (each.begin != at || each.end <= at || each.end > bytes_.size())
        throw invalid_argument("gradsieve: " + name + " has layers " + std::to_string(each.begin) + " to before " +
                               std::to_string(each.end) + ", expected to begin at " + std::to_string(at) + " of " +
                               std::to_string(bytes_.size()));
      std::uint64_t sum = 0;
      for (; at < each.end; ++at) {
        slots_.push_back({g, sum});
        if (bytes_[at] >= (std::uint64_t{1} << 53) - sum)
          throw invalid_argument("gradsieve: " + name + " reaches 2^53 bytes");
        sum += bytes_[at];
      }
      if (sum != each.bytes)
        throw invalid_argument("gradsieve: " + name + " says " + std::to_string(each.bytes) +
                               " bytes, its layers have " + std::to_string(sum));
      require_between("predicted start of " + name, each.start, 0, longest);
      require_between("predicted finish of " + name, each.finish, each.start, longest);
    }
    if (at != bytes_.size())
      throw invalid_argument("gradsieve: a plan's groups end at layer " + std::to_string(at) + " of " +
                             std::to_string(bytes_.size()));
    if (certificate_) require_between("certificate of a plan, in seconds,", *certificate_, 0, longest);
  }

  /// Groups in the order in which they are issued.
  [[nodiscard]] std::vector<plan_group> const& groups() const noexcept { return groups_; }
  /// Number of layers of the trace that the plan was made for.
  [[nodiscard]] std::size_t count() const noexcept { return bytes_.size(); }
  /// Bytes of a layer. @pre layer < count()
  [[nodiscard]] std::uint64_t bytes_of(std::size_t layer) const noexcept { return bytes_[layer]; }
  /// The group of a layer. @pre layer < count()
  [[nodiscard]] std::size_t group_of(std::size_t layer) const noexcept { return slots_[layer].group; }
  /// The position of a layer's gradient. @pre layer < count()
  [[nodiscard]] plan_slot slot(std::size_t layer) const noexcept { return slots_[layer]; }

  /// The predicted finish of the last group, in seconds from the start of the backward pass; 0 without groups.
  [[nodiscard]] double finish() const noexcept { return groups_.empty() ? 0 : groups_.back().finish; }

  /// Upper bound in seconds on how far finish(), or the planner's own objective, is above the minimum for its cost and
  /// constraints, to a relative rounding of 1e-12. 0: optimal; no value: unknown.
  [[nodiscard]] std::optional<double> certificate() const noexcept { return certificate_; }

  /// A hash of the groups' borders and the layers' bytes, without predicted times; the same on every machine.
  [[nodiscard]] std::uint64_t hash() const noexcept {
    fingerprint all;
    all.add(std::uint64_t{bytes_.size()});
    for (auto const each : bytes_) all.add(each);
    for (auto const& each : groups_) all.add(std::uint64_t{each.end});
    return all.value();
  }

  /// The plan as bytes. Little-endian: magic u32 | version u16 | has a certificate u16 | layers u64 | groups u64 |
  /// certificate f64 | checksum u64, then the layers' bytes (u64), then the groups (end u64, start f64, finish f64).
  [[nodiscard]] std::vector<std::byte> to_bytes() const {
    std::vector<std::byte> out(header_bytes + 8 * bytes_.size() + 24 * groups_.size());
    auto const to = std::span{out};
    wire::store_all(to, magic, version, static_cast<std::uint16_t>(certificate_ ? 1 : 0), std::uint64_t{bytes_.size()},
                    std::uint64_t{groups_.size()}, certificate_.value_or(0));
    wire::store(to.subspan(header_bytes), std::span{bytes_});
    std::size_t at = header_bytes + 8 * bytes_.size();
    for (auto const& each : groups_)
      at += wire::store_all(to.subspan(at), std::uint64_t{each.end}, each.start, each.finish);
    wire::store_one(to.subspan(32), wire::checksum_around(to, 32));
    return out;
  }

  /// Reads what to_bytes() wrote, and checks it. Allocates no more than the number of bytes justifies. @throws
  /// corrupt_message if the bytes are truncated, damaged, of another version or not a plan.
  [[nodiscard]] static plan from_bytes(std::span<std::byte const> bytes) {
    auto const refuse = [](std::string const& why) { throw corrupt_message("gradsieve: plan " + why); };
    wire::check_begin(bytes, header_bytes, magic, version, refuse);
    std::uint16_t certified = 0;
    std::uint64_t layers = 0, groups = 0;
    double certificate = 0;
    wire::load_all(bytes.subspan(6), certified, layers, groups, certificate);
    auto const body = bytes.size() - header_bytes;
    if (layers > body / 8 || groups > layers || body != 8 * layers + 24 * groups || certified > 1)
      refuse("has " + std::to_string(bytes.size()) + " bytes, which its header does not explain");
    wire::check_sum(bytes, 32, refuse);

    std::vector<std::uint64_t> sizes(layers);
    wire::load(std::span{sizes}, bytes.subspan(header_bytes, 8 * layers));
    std::vector<plan_group> list(groups);
    std::size_t at = header_bytes + 8 * layers;
    std::size_t begin = 0;
    for (auto& each : list) {
      each.begin = begin;
      std::uint64_t end = 0;
      at += wire::load_all(bytes.subspan(at), end, each.start, each.finish);
      each.end = end;
      for (std::size_t i = begin; i < std::min<std::size_t>(each.end, layers); ++i) each.bytes += sizes[i];
      begin = std::min<std::size_t>(each.end, layers);
    }
    try {
      return plan{std::move(sizes), std::move(list), certified ? std::optional{certificate} : std::nullopt};
    } catch (invalid_argument const& problem) {
      throw corrupt_message(problem.what());
    }
  }

  /// True if groups, layers and predictions are equal.
  friend bool operator==(plan const& a, plan const& b) {
    return a.bytes_ == b.bytes_ && a.groups_ == b.groups_ && a.certificate_ == b.certificate_;
  }

  /// For display: groups as [first-last], times in milliseconds.
  friend std::ostream& operator<<(std::ostream& out, plan const& it) {
    plain_output const plain{out};
    out << "plan{" << it.count() << " layers, " << it.groups_.size() << " groups:";
    for (auto const& each : it.groups_) out << " [" << each.begin << '-' << each.end - 1 << ']';
    return out << ", finish " << shortest{1e3 * it.finish()} << " ms}";
  }

 private:
  static constexpr std::uint32_t magic = 0x4C50'5247;  // "GRPL"
  static constexpr std::uint16_t version = 2;
  static constexpr std::size_t header_bytes = 40;
  static constexpr double longest = std::numeric_limits<double>::max();  // seconds

  std::vector<std::uint64_t> bytes_;
  std::vector<plan_group> groups_;
  std::vector<plan_slot> slots_;
  std::optional<double> certificate_;
};

}  // namespace gradsieve
