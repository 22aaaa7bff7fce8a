// What the conformance suites of policies share: findings, values to try, memory between guards, and a partitioner.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <gradsieve/gradsieve.hpp>

#include "data.hpp"

namespace conformance {

namespace gs = gradsieve;

/// What went wrong, a line each, and with which input. Only the first lines are kept.
class findings {
 public:
  /// What is tried from here on: it begins the lines.
  template <class... Parts>
  void in(Parts const&... parts) {
    where_ = text_of(parts...);
  }

  /// Notes `parts` unless `good`.
  template <class... Parts>
  void expect(bool good, Parts const&... parts) {
    if (good || found_.size() > 2000) return;
    found_ += where_ + ": " + text_of(parts...) + '\n';
  }

  /// Calls f(); notes what it throws.
  template <class F>
  void attempt(F const& f) {
    try {
      f();
    } catch (std::exception const& error) {
      expect(false, "threw '", error.what(), '\'');
    }
  }

  [[nodiscard]] std::string const& text() const noexcept { return found_; }

 private:
  template <class... Parts>
  static std::string text_of(Parts const&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
  }

  std::string where_ = "at once";
  std::string found_;
};

/// Memory for `count` elements between guards.
template <class T>
class guarded {
 public:
  guarded(std::size_t count, T fill) : all_(count + 2 * guard, fill), fill_{fill} {}

  [[nodiscard]] std::span<T> span() { return std::span{all_}.subspan(guard, all_.size() - 2 * guard); }
  [[nodiscard]] bool untouched_outside() const {
    auto const same = [&](T const& x) { return x == fill_; };
    return std::all_of(all_.begin(), all_.begin() + guard, same) && std::all_of(all_.end() - guard, all_.end(), same);
  }

 private:
  static constexpr std::size_t guard = 16;
  std::vector<T> all_;
  T fill_;
};

template <class T>
bool same_bits(std::span<T const> a, std::span<T const> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}
template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return same_bits(std::span<T const>{a}, std::span<T const>{b});
}
inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

/// Calls f(name, values) for n values of each law: those of data.hpp, and with one sign only.
template <class F>
void for_each_law(std::uint64_t n, F const& f) {
  for (auto const law : data::all_laws) f(data::name(law), data::make(law, n));
  auto values = data::make(data::law::laplace, n);
  for (float& x : values) x = std::fabs(x);
  f(std::string{"positive"}, values);
  for (float& x : values) x = -x;
  f(std::string{"negative"}, values);
}

/// Small whole numbers, most of them near zero, as a Laplace law gives: their sums over ranks and steps are exact.
inline std::vector<float> whole_numbers(std::uint64_t n, std::uint64_t seed) {
  data::generator random{seed + 1};
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>(std::trunc(20 * random.laplace()));
  return values;
}

/// A segment for each `count` neighbouring layers, with what passes through between them.
struct joined_layers {
  using default_exchange = gs::gather;
  static constexpr gs::partitioner_traits traits{};
  std::uint32_t count = 1;

  void split(std::span<gs::range const> layers, int, gs::segment_list& list) const {
    for (std::size_t i = 0; i < layers.size(); i += count) {
      auto const& last = layers[std::min<std::size_t>(i + count, layers.size()) - 1];
      list.push_back({.offset = layers[i].offset, .size = last.offset + last.size - layers[i].offset});
    }
  }
  void assign(std::span<gs::segment> segments, std::span<double const>, gs::step_budget const budget,
              gs::partition_scratch&) const {
    std::uint64_t total = 0;
    for (auto const& each : segments) total += each.size;
    for (auto& each : segments)
      each.k = budget.density >= 1 ? static_cast<gs::index_type>(each.size)
               : total == 0        ? 0
                                   : gs::budget_of(budget.density, each.size * budget.elements / total);
  }

  friend bool operator==(joined_layers const&, joined_layers const&) = default;
};

}  // namespace conformance
