// The same job in other ways. Whole steps: accumulate, take exactly the k largest, emit, zero them. Selection alone, as
// the LDTE-BS paper (Chen, Liu, Han 2021) compares: from an accumulator in memory, beside select/.
#include "peers.hpp"

#include "peer_rows.hpp"
#include "published.hpp"
#include "select_rows.hpp"

namespace bench {
namespace {

template <class Peer>
class peer_step {
 public:
  explicit peer_step(setting const& at)
      : team_{at.threads},
        residual_{zeros(team_, at.n)},
        indices_(at.k()),
        values_(at.k()),
        select_{at.n, at.k(), at.threads} {}

  void operator()(std::span<float const> gradient) {
    accumulate(team_, residual_.data(), gradient);
    selected_ = select_(residual_.span(), {indices_.span(), values_.span(), {}});
    team_.run(selected_, [&](int worker) {
      auto const [begin, end] = team_.part(selected_, worker);
      for (auto i = begin; i < end; ++i) residual_[indices_[i]] = 0;
    });
  }

  [[nodiscard]] std::span<float const> residual() const { return residual_.span(); }
  [[nodiscard]] std::span<float const> values() const { return values_.first(selected_); }

 private:
  gs::detail::host_team team_;
  gs::host_buffer<float> residual_;
  gs::host_buffer<gs::index_type> indices_;
  gs::host_buffer<float> values_;
  gs::index_type selected_ = 0;
  Peer select_;
};

template <class Peer>
void add_peer_select(std::string const& peer_name, setting const& at) {
  add("peer/" + peer_name + "/" + at.name(), [=](benchmark::State& state) {
    Peer select{at.n, at.k(), at.threads};
    gs::host_buffer<gs::index_type> indices(at.k());
    gs::host_buffer<float> values(at.k());
    gs::index_type selected = 0;
    row<float> row{state, at};
    row.measure(4 * at.n, [&](std::span<float const> accumulator) {
      return seconds([&] { selected = select(accumulator, {indices.span(), values.span(), {}}); });
    });
    row.count("selected_per_k", static_cast<double>(selected) / at.k());
  });
}

}  // namespace

void add_peers(options const& chosen) {
  for (auto at : settings_of(chosen, {0.001, 0.01})) {
    add_peer_step<peer_step<by_standard_algorithm<nth_element>>>("nth_element", at);
    add_peer_step<peer_step<by_standard_algorithm<partial_sort>>>("partial_sort", at);
    add_peer_step<peer_step<radix_sort>>("radix_sort", at);
#if defined(GRADSIEVE_BENCH_SIMD_SORT)
    add_peer_step<peer_step<by_standard_algorithm<simd_sort>>>("simd_sort", at);
#endif
#if defined(GRADSIEVE_BENCH_HIGHWAY)
    add_peer_step<peer_step<by_standard_algorithm<highway>>>("highway", at);
#endif
    for (auto const* law : {"laplace", "ef"}) {
      at.law = law;
      add_peer_select<published_radix>("published_radix", at);
      add_peer_select<published_hierarchical>("published_hierarchical", at);
      for_each_selector_to_compare(
          [&](std::string const& name, auto selector) { add_select(name, selector, at, false); });
    }
  }
}

}  // namespace bench
