// Policies that are right but for one optional member, of the name that a step looks for and of another type: each is
// refused by a sentence of its own.
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

struct wrong_capacity : gs::radix {
  std::uint64_t capacity(gs::index_type k) const { return k; }
};
struct wrong_predict : gs::radix {
  template <class Workspace>
  float predict(Workspace&, gs::accumulator_ref, gs::index_type) const {
    return 0;
  }
};
struct wrong_predicts_warm : gs::radix {
  bool predicts_warm() { return true; }
};
struct wrong_choose : gs::radix {
  gs::index_type choose(gs::candidates const& found, gs::index_type k) const { return found.count < k ? 0 : k; }
};
struct wrong_search : gs::radix {
  template <class Workspace>
  gs::key_type search(Workspace&, gs::accumulator_ref, gs::index_type) const {
    return 1;
  }
};
struct wrong_score : gs::chunked {
  double score(float accumulator, float) const noexcept { return accumulator; }
};
struct wrong_sent : gs::chunked {
  float sent(float accumulator) const noexcept { return accumulator; }
};
struct wrong_bins_within_layers : gs::radix {
  static constexpr bool bins_within_layers = true;
};
struct wrong_same_on_all_ranks : gs::radix {
  static constexpr int same_on_all_ranks = 1;
};
struct stray_single_owner : gs::whole {
  bool single_owner = false;
};
struct wrong_stored : gs::error_feedback {
  using stored = double;
};
struct wrong_factor : gs::error_feedback {
  float factor(double, int) { return 1; }
  bool needs_norm() const noexcept { return true; }
};
struct wrong_needs_norm : gs::error_feedback {
  bool needs_norm() const noexcept { return true; }
};
struct wrong_meaning : gs::error_feedback {
  static constexpr int meaning = 2;
};
struct wrong_quantise : gs::coo {
  void quantise(gs::message_info const&, std::span<gs::index_type const>, std::span<float>) const {}
};
struct wrong_largest : gs::coo {
  static constexpr double largest = 1;
};
struct wrong_most_entries : gs::coo {
  std::uint64_t most_entries(std::uint64_t size) const { return size / 8; }
};
struct wrong_breakdown : gs::coo {
  double breakdown(gs::message_info const&, gs::selection_view, std::span<gs::range const>,
                   std::span<std::byte const>) const {
    return 0;
  }
};
struct wrong_longest_bin : gs::coo {
  std::uint32_t longest_bin() const { return 100; }
};
struct wrong_check : gs::coo {
  bool check() { return true; }
};
struct stray_broadcast : gs::gather {
  static constexpr bool broadcast = true;
};
struct wrong_values_largest : gs::fp32 {
  double largest() const { return 1; }
};
struct wrong_most_count : gs::fp32 {
  std::uint64_t most_count() const { return 1; }
};
struct wrong_value_bytes : gs::fp32 {
  int value_bytes() const noexcept { return 4; }
};
struct wrong_name_of : gs::delta {
  std::string name_of(std::span<std::byte const>) const { return name; }
};
using packed_values_largest = gs::packed<gs::delta, wrong_values_largest>;
using packed_most_count = gs::packed<gs::delta, wrong_most_count>;
using packed_value_bytes = gs::packed<gs::delta, wrong_value_bytes>;
using packed_name_of = gs::packed<wrong_name_of>;
using narrow_factor = gs::in_bfloat16<wrong_factor>;

template <class Recipe>
void use(Recipe const&) {
  static_assert(sizeof(gs::compressor<gs::host, Recipe>) > 0);
}

void use_all() {
  use(gs::recipe{.selector = wrong_capacity{}});
  use(gs::recipe{.selector = wrong_predict{}});
  use(gs::recipe{.selector = wrong_predicts_warm{}});
  use(gs::recipe{.selector = wrong_choose{}});
  use(gs::recipe{.selector = wrong_search{}});
  use(gs::recipe{.selector = wrong_score{}});
  use(gs::recipe{.selector = wrong_sent{}});
  use(gs::recipe{.selector = wrong_bins_within_layers{}});
  use(gs::recipe{.selector = wrong_same_on_all_ranks{}});
  use(gs::recipe{.partitioner = stray_single_owner{}});
  use(gs::recipe{.residual = wrong_stored{}});
  use(gs::recipe{.residual = wrong_factor{}});
  use(gs::recipe{.residual = wrong_needs_norm{}});
  use(gs::recipe{.residual = wrong_meaning{}});
  use(gs::recipe{.codec = wrong_quantise{}});
  use(gs::recipe{.codec = wrong_largest{}});
  use(gs::recipe{.codec = wrong_most_entries{}});
  use(gs::recipe{.codec = wrong_breakdown{}});
  use(gs::recipe{.codec = wrong_longest_bin{}});
  use(gs::recipe{.exchange = stray_broadcast{}});
  use(gs::recipe{.codec = packed_values_largest{}});
  use(gs::recipe{.codec = packed_most_count{}});
  use(gs::recipe{.codec = packed_value_bytes{}});
  use(gs::recipe{.codec = packed_name_of{}});
  use(gs::recipe{.residual = narrow_factor{}});
  gs::compressor{gs::host{}, gs::layout::flat(10), gs::recipe{.codec = wrong_check{}}};  // is called there
}
