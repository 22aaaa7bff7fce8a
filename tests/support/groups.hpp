// Groups of a plan: a plan that is cut where a test wants it, and its groups exchanged without overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/overlap/group_map.hpp>
#include <gradsieve/plan/plan.hpp>

#include "data.hpp"

namespace groups {

namespace gs = gradsieve;
using order_type = std::vector<std::size_t>;

inline order_type backwards(std::size_t count) {
  order_type order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

template <class Values>
void shuffle(Values& values, data::generator& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.below(i)]);
}

/// Borders of groups at random, the last behind the last layer.
inline std::vector<std::size_t> some_borders(std::size_t count, data::generator& random) {
  std::vector<std::size_t> borders;
  for (std::size_t i = 1; i < count; ++i)
    if (random.below(3) == 0) borders.push_back(i);
  if (count > 0) borders.push_back(count);
  return borders;
}

/// Layers in ready order, from the layout's; cut where `borders` says, for gradients of float.
inline gs::plan plan_of(gs::layout const& layers, order_type const& order, std::vector<std::size_t> const& borders) {
  std::vector<std::uint64_t> bytes;
  for (auto const at : order) bytes.push_back(4 * layers[at].size);
  std::vector<gs::plan_group> groups;
  std::size_t begin = 0;
  for (auto const end : borders) {
    groups.push_back({begin, end, 0});
    for (; begin < end; ++begin) groups.back().bytes += bytes[begin];
  }
  return gs::plan{bytes, groups};
}

/// The groups' gradients packed, exchanged one after the other, and unpacked: what overlap must equal.
template <class Make>
class one_by_one {
 public:
  one_by_one(gs::layout const& layers, gs::plan const& chosen, order_type const& order, Make const& make)
      : groups_{layers, chosen, order, 4} {
    for (auto const& each : groups_.groups()) exchanges_.push_back(make(each.layers));
  }

  template <class Comm>
  void exchange(Comm const& comm, std::span<float> gradient) {
    for (std::size_t g = 0; g < exchanges_.size(); ++g) {
      auto const& group = groups_.groups()[g];
      if (group.layers.size() == 0) continue;
      std::vector<float> packed(group.layers.size());
      auto const all = std::span{packed};
      group.for_each_piece(gradient, all, [](auto piece, auto place) { std::ranges::copy(piece, place.begin()); });
      exchanges_[g].exchange(comm, all);
      group.for_each_piece(gradient, all, [](auto piece, auto place) { std::ranges::copy(place, piece.begin()); });
    }
  }

 private:
  gs::detail::group_map groups_;
  std::vector<std::invoke_result_t<Make const&, gs::layout const&>> exchanges_;
};

}  // namespace groups
