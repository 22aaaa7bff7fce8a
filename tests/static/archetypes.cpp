// A space, a workspace and a node's memory that have just what the concepts ask for, and nothing else: compressors and
// all selectors compile with them, so that the concepts name everything that is called. With WITHOUT_... a member is
// missing.
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>
#include <gradsieve/step/stages.hpp>
#include <gradsieve/two_level.hpp>

namespace gs = gradsieve;

namespace archetypes {

template <class T>
struct memory {
  T* data() const;
};

struct keys {
  std::uint64_t size() const;
  gs::key_type kth_largest(std::uint64_t);
  std::uint64_t count_at_least(gs::key_type) const;
  std::uint64_t nonzero() const;
  double sum_abs() const;
};

struct sums {
  double sum_abs;
  double sum_squares;
  gs::key_type max_key;
  std::uint64_t nonzero;
};

/// What selectors may call.
struct verbs {
  keys sample(gs::accumulator_ref, std::uint64_t, std::uint64_t = 0);
  gs::candidates collected(gs::accumulator_ref);
  void collect_again(gs::accumulator_ref, gs::key_type);
  sums measure(gs::accumulator_ref);
  float mean_abs(gs::accumulator_ref);
  float mean_of_maxima(gs::accumulator_ref);
  std::uint64_t count_at_least(gs::accumulator_ref, gs::key_type);
  template <std::size_t N, class Add>
  gs::whole_sums<N> add_up(gs::accumulator_ref, Add const&);
  template <class Keep = gs::keep_all>
  gs::threshold kth_largest(gs::accumulator_ref, gs::index_type, gs::key_type = 1, Keep const& = {});
  template <class Keep = gs::keep_all>
  gs::index_type compact(gs::accumulator_ref, gs::threshold, gs::selection_span, Keep const& = {});
  template <class Body>
  gs::index_type take_candidates(gs::accumulator_ref, gs::selection_span, Body const&);
  std::uint64_t selectable(gs::accumulator_ref);
  template <class Places>
  gs::index_type take_places(gs::accumulator_ref, std::uint64_t, Places const&, gs::selection_span);
  template <class Body>
  void replace(gs::view<float>, Body const&);
#ifndef WITHOUT_NOTE_THRESHOLD
  void note_threshold(gs::threshold_origin, int);
#endif
};
static_assert(gs::selector_workspace<verbs>, "a workspace lacks a verb that selectors may call");

struct bare;

struct workspace {
  template <class T>
  using buffer = memory<T>;
  workspace(bare const&, std::uint64_t);
  bare const& where() const;
  void plan(std::span<gs::segment const>, std::span<gs::range const>, std::uint64_t, std::span<std::uint32_t const>);
};

struct chosen {
  std::uint64_t number;
};
struct found {};
struct sent {};
template <class T>
struct read_as {};

template <class Recipe>
struct stages : gs::detail::step_parts<Recipe> {
  static constexpr bool holds_failures = false;
  struct [[maybe_unused]] arithmetic {};
  using entries = found;
  using selection_type = chosen;
  using report_type = gs::step_report;
  template <class T>
  using incoming = read_as<T>;

  struct residual_part {
    void flush_pending();
    void rescale(float, std::span<float>);
    double squared_norm();
    std::span<float const> state(std::size_t);
    std::vector<float> read(std::size_t);
    void write(std::size_t, std::span<float const>);
    void absorb(std::size_t, std::span<float const>);
  };
  struct selection_part {
    gs::detail::segmentation<decltype(Recipe::partitioner)>& segments();
    bool decide(gs::detail::step_role);
    template <class Comm>
    bool decide_by_norms(Comm const&, gs::detail::step_role, gs::detail::held_failure&);
    template <class T>
    std::uint64_t count_non_finite(read_as<T> const&);
    std::uint64_t steps() const;
    void set_steps(std::uint64_t);
    std::vector<gs::warm_threshold> warm_thresholds() const;
    void set_warm_thresholds(std::vector<gs::warm_threshold>);
    void forget_warm_thresholds();
  };
  struct passthrough_part {
    template <class Segments>
    void choose(Segments const&, bool);
    std::span<float> saved();
  };

  stages(bare const&, gs::layout, Recipe);
  template <class Gradient>
  gs::gradient_ref<float> gradient_of(Gradient&) const;
  template <class T>
  void check(gs::gradient_ref<T>) const;
  template <class T>
  gs::gradient_ref<T> without_values(gs::gradient_ref<T>) const;
  template <class Comm>
  Comm const& for_host(Comm const&) const;
  gs::host const& on_host() const;
  gs::detail::preflight::word word() const;
  void reserve(int);
  void begin_step(std::size_t, gs::detail::step_role);
  void end_step();
  void forget_step();
  template <class T>
  read_as<T> prepare(gs::gradient_ref<T const>, int);
  template <class T>
  void accumulate(read_as<T> const&, gs::detail::step_role);
  void may_exclude();
  void exclude(std::span<std::uint32_t const>);
  void take_passthrough(float);
#ifndef WITHOUT_PUT_BACK
  void put_back();
#endif
  found select(gs::detail::step_role);
  void quantise(found const&, float);
  template <class Comm>
  sent exchange(Comm const&, found const&, float, gs::detail::held_failure const&);
  void mark_pending(found const&);
  void mark_pending(sent const&);
  template <class T>
  void apply(sent const&, gs::gradient_ref<T>);
  void rollback();
  void abandon();
  selection_type selected(found const&);
  bool is_last(selection_type const&) const;
  std::span<std::byte const> encode(selection_type const&);
  gs::step_report const& report() const;

  workspace work;
  residual_part memory;
  passthrough_part passthrough;
  gs::detail::preflight ranks;
  selection_part selection;
  selection_type last;
};

/// What two_level_compressor calls.
struct node {
  static constexpr bool holds_failures = false;
  struct [[maybe_unused]] arithmetic {};
  node(bare const&, gs::node_share const&);
  template <class Gradient>
  static gs::gradient_ref<float> gradient_of(Gradient&, gs::layout const&);
  template <bool Scatters, class T>
  void reserve(gs::gradient_ref<T>, gs::layout const&);
  template <class Inside>
  void meet(Inside const&, std::uint64_t, std::uint64_t, std::uint64_t, gs::detail::held_failure&);
#ifndef WITHOUT_AVERAGE
  template <class Inside, class T>
  void average(Inside const&, gs::gradient_ref<T>);
#endif
  template <class T>
  std::span<T> values() const;
  template <class Inside, class Compressor, class T>
  void collect(Inside const&, gs::gradient_ref<T>, gs::detail::held_failure&, Compressor&);
  gs::step_report report(gs::step_report const&) const;
};

struct bare {
  using workspace = archetypes::workspace;
  template <class Recipe>
  using step = stages<Recipe>;
  using node_exchange = node;
  template <class>
  using selector_view = verbs;
  static constexpr bool stream_ordered = true;
  template <class>
  static constexpr bool keeps = true;
  template <class>
  static constexpr bool encodes_with = true;
  template <class Exchange, class Codec>
  static constexpr bool exchanges_with = true;
  template <class>
  static constexpr bool sums_with = true;
};
static_assert(gs::space<bare>);
template <class Space, class Recipe = gs::recipe<>>
inline constexpr bool has_stages = gs::step_stages<typename Space::template step<Recipe>, Space, Recipe>;
static_assert(has_stages<bare>, "this space's step lacks a member that a step calls: see step_stages and its parts");
static_assert(has_stages<gs::host> && has_stages<gs::host, gs::recipe<gs::laplacian, gs::deft>>);

/// A communicator in any space, with what every exchange needs.
struct ranks {
  static constexpr bool stream_ordered = true;
  int rank() const;
  int size() const;
  template <class Space, class T, std::size_t Extent>
  void all_reduce(Space const&, std::span<T, Extent>, gs::reduction) const;
  template <class Space>
  void all_gather(Space const&, std::span<std::byte const>, std::span<std::byte>) const;
  template <class Space>
  void all_gather(Space const&, std::span<std::byte const>, std::span<std::byte>, std::span<std::size_t const>) const;
};
static_assert(gs::communicator<ranks>);

}  // namespace archetypes

using archetypes::bare;
using archetypes::verbs;

template <class Recipe>
void use(Recipe recipe) {
  gs::compressor reducer{bare{}, gs::layout::flat(10), recipe};
  archetypes::ranks const comm;
  std::vector<float> gradient(10);
  std::span<std::byte const> bytes;
  reducer.connect(comm);
  reducer.exchange(comm, gradient);
  reducer.exchange(comm, gradient, gs::skipped_layers{});
  reducer.fail(comm, gradient);
  static_cast<void>(reducer.encode(reducer.compress(gradient)));
  static_cast<void>(reducer.report());
  reducer.discard_step();
  reducer.rescale(2);
  static_cast<void>(reducer.residual_norm());
  static_cast<void>(reducer.residual());
  static_cast<void>(reducer.step());
  static_cast<void>(reducer.where());
  bytes = reducer.state();
  reducer.restore(bytes);
  reducer.absorb(bytes);

  gs::two_level const both{comm, comm};
  gs::two_level_compressor nodes{bare{}, gs::layout::flat(10), recipe, both};
  nodes.exchange(both, gradient);
  nodes.exchange(both, gradient, gs::skipped_layers{});
}

/// A selector's members, with the archetype of a workspace.
template <class Selector>
void use_selector(Selector const& chosen, verbs& work, gs::accumulator_ref const acc, gs::selection_span out) {
  static_cast<void>(gs::predict_candidate_threshold(chosen, work, acc, 1));
  static_cast<void>(gs::select(chosen, work, acc, 1, out));
}

void use_all(verbs& work, gs::accumulator_ref const acc, gs::selection_span out) {
  use(gs::recipe{.density = 0.1});
  use(gs::recipe{.density = 0.1, .partitioner = gs::deft{}});
  use(gs::recipe{.density = 0.1, .selector = gs::chunked{}, .residual = gs::momentum_correction{}});
  auto const each = [&](auto const&... chosen) { (use_selector(chosen, work, acc, out), ...); };
  each(gs::radix{}, gs::hierarchical{}, gs::laplacian{}, gs::fixed_threshold{}, gs::chunked{}, gs::adacomp{},
       gs::trimmed{}, gs::threshold_search{}, gs::ldte{}, gs::sidco{}, gs::random_k{});
}
