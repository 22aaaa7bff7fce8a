// A compressor whose recipe is read from text. A menu of policies says what is compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/recipe_text.hpp>

namespace gradsieve {

// ---- Policies that stand for one of several ----------------------------------------------------------------

namespace detail {

/// What any choice among policies is: a policy that identifies, checks and prints itself as the chosen one does.
template <class... Types>
struct any_policy {
  std::variant<Types...> chosen{};

  void check() const {
    std::visit([](auto const& it) { gradsieve::check(it); }, chosen);
  }
  void add_to(fingerprint& to) const {
    std::visit([&](auto const& it) { gradsieve::add_to(to, it); }, chosen);
  }
  friend bool operator==(any_policy const&, any_policy const&) = default;
  friend std::ostream& operator<<(std::ostream& out, any_policy const& it) {
    plain_output const plain{out};
    std::visit([&](auto const& each) { print(out, each); }, it.chosen);
    return out;
  }
};

/// Any workspace or preview, for predict(): it draws samples and nothing else.
struct any_preview {
  void* view;
  key_sample (*draw)(void*, accumulator_ref const&, std::uint64_t, std::uint64_t);

  [[nodiscard]] key_sample sample(accumulator_ref const acc, std::uint64_t count, std::uint64_t seed = 0) {
    return draw(view, acc, count, seed);
  }
};

}  // namespace detail

/// A selector without bins, chosen at run time. Selects what the chosen one does. Cost: that one's and a branch a
/// segment.
template <class... Types>
struct any_selector : detail::any_policy<Types...> {
  [[nodiscard]] index_type capacity(index_type k) const {
    return std::visit([&](auto const& it) { return selection_capacity(it, k); }, this->chosen);
  }
  template <class View>
  [[nodiscard]] key_type predict(View& view, accumulator_ref const acc, index_type k) const {
    detail::any_preview any{&view, [](void* of, accumulator_ref const& in, std::uint64_t count, std::uint64_t seed) {
                              return static_cast<View*>(of)->sample(in, count, seed);
                            }};
    return predict_by(any, acc, k);
  }
  template <class Workspace>
  [[nodiscard]] index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    return std::visit([&](auto const& it) { return gradsieve::select(it, work, acc, k, out); }, this->chosen);
  }
  friend bool operator==(any_selector const&, any_selector const&) = default;

 private:
  [[nodiscard]] key_type predict_by(detail::any_preview& view, accumulator_ref const acc, index_type k) const {
    return std::visit([&](auto const& it) { return predict_candidate_threshold(it, view, acc, k); }, this->chosen);
  }
};

/// An index codec chosen at run time; writes the chosen one's bytes and id.
template <class... Types>
struct any_indices : detail::any_policy<Types...> {
  static constexpr std::uint16_t id = 0;  // no codec's: see chosen_id()

  /// The id of the chosen codec.
  [[nodiscard]] std::uint16_t chosen_id() const noexcept {
    return std::visit([](auto const& it) { return std::uint16_t{it.id}; }, this->chosen);
  }
  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count) const noexcept {
    return std::visit([&](auto const& it) { return it.max_bytes(n, count); }, this->chosen);
  }
  [[nodiscard]] std::uint64_t encode(message_info const& info, std::span<index_type const> in,
                                     std::span<std::byte> to) const {
    return std::visit([&](auto const& it) { return it.encode(info, in, to); }, this->chosen);
  }
  [[nodiscard]] std::uint64_t decode(message_info const& info, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    return std::visit([&](auto const& it) { return it.decode(info, from, out); }, this->chosen);
  }
  [[nodiscard]] char const* name_of(std::span<std::byte const> part) const noexcept {
    return std::visit(
        [&](auto const& it) -> char const* {
          if constexpr (choosing_index_codec<std::remove_cvref_t<decltype(it)>>)
            return it.name_of(part);
          else
            return it.name;
        },
        this->chosen);
  }
  friend bool operator==(any_indices const&, any_indices const&) = default;
};

/// A value codec chosen at run time; writes the chosen one's bytes and id.
template <class... Types>
struct any_values : detail::any_policy<Types...> {
  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t count) const noexcept {
    return std::visit([&](auto const& it) { return it.max_bytes(count); }, this->chosen);
  }
  [[nodiscard]] std::uint16_t choose(message_info const& info, std::span<index_type const> places,
                                     std::span<float const> values) const noexcept {
    return std::visit(
        [&](auto const& it) -> std::uint16_t {
          if constexpr (choosing_value_codec<std::remove_cvref_t<decltype(it)>>)
            return it.choose(info, places, values);
          else
            return it.id;
        },
        this->chosen);
  }
  template <class F>
  bool with(std::uint16_t part_id, F const& f) const {
    return std::visit(
        [&](auto const& it) {
          if constexpr (choosing_value_codec<std::remove_cvref_t<decltype(it)>>) {
            return it.with(part_id, f);
          } else {
            if (part_id != it.id) return false;
            f(it);
            return true;
          }
        },
        this->chosen);
  }
  void quantise(message_info const& info, std::span<index_type const> places, std::span<float> values) const noexcept {
    std::visit(
        [&](auto const& it) {
          if constexpr (quantises<std::remove_cvref_t<decltype(it)>>) it.quantise(info, places, values);
        },
        this->chosen);
  }
  [[nodiscard]] float largest() const noexcept {
    return std::visit(
        [](auto const& it) {
          if constexpr (limited_codec<std::remove_cvref_t<decltype(it)>>)
            return it.largest();
          else
            return largest_value<float>;
        },
        this->chosen);
  }
  friend bool operator==(any_values const&, any_values const&) = default;
};

/// The same of codecs that code each value by itself and lose bits (fp16, bf16), so that sums can be formed in the
/// chosen one's format; see elementwise_values.
template <class... Types>
struct any_summed_values : any_values<Types...> {
  [[nodiscard]] std::uint64_t value_bytes() const noexcept {
    return std::visit([](auto const& it) { return it.value_bytes(); }, this->chosen);
  }
  void encode(message_info const& info, std::span<index_type const> places, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    std::visit([&](auto const& it) { it.encode(info, places, values, to); }, this->chosen);
  }
  void decode(message_info const& info, std::span<index_type const> places, std::span<std::byte const> from,
              std::span<float> values) const {
    std::visit([&](auto const& it) { it.decode(info, places, from, values); }, this->chosen);
  }
  friend bool operator==(any_summed_values const&, any_summed_values const&) = default;
};

// ---- Communicators -------------------------------------------------------------------------------------------

/// Stands for any communicator of the host, so that a compressor is compiled once for all transports. Collectives that
/// the transport lacks throw communication_error. Cost: a virtual call per collective.
class any_communicator {
 public:
  using bytes = std::span<std::byte const>;    ///< what is sent
  using room = std::span<std::byte>;           ///< what is received
  using sizes = std::span<std::size_t const>;  ///< one a rank

  /// Implement it for a transport of one's own that is known at run time only, as the C interface does.
  struct transport {
    virtual ~transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual void all_reduce(std::span<float>, reduction) const = 0;
    virtual void all_reduce(std::span<double>, reduction) const = 0;
    virtual void all_gather(bytes, room) const = 0;
    virtual void all_gather(bytes, room, sizes) const = 0;
    virtual void broadcast(room, int) const = 0;
    virtual void send_receive(bytes, int, room, int) const = 0;
  };

  /// Calls go to this transport.
  explicit any_communicator(std::shared_ptr<transport const> how) : how_{std::move(how)} {}
  /// Calls go to a copy of this communicator.
  template <class Comm>
  requires(!std::is_same_v<Comm, any_communicator> &&
           has_all_gather<Comm, host>) explicit any_communicator(Comm const& comm)
      : how_{std::make_shared<over<Comm>>(comm)} {}

  [[nodiscard]] int rank() const { return how_->rank(); }
  [[nodiscard]] int size() const { return how_->size(); }
  template <class T>
  void all_reduce(host const&, std::span<T> all, reduction how) const {
    how_->all_reduce(all, how);
  }
  void all_gather(host const&, bytes mine, room all) const { how_->all_gather(mine, all); }
  void all_gather(host const&, bytes mine, room all, sizes each) const { how_->all_gather(mine, all, each); }
  void broadcast(host const&, room in_out, int root) const { how_->broadcast(in_out, root); }
  void send_receive(host const&, bytes out, int to, room in, int from) const { how_->send_receive(out, to, in, from); }

 private:
  template <class Comm>
  struct over final : transport {
    explicit over(Comm const& to) : comm{to} {}
    [[nodiscard]] int rank() const override { return comm.rank(); }
    [[nodiscard]] int size() const override { return comm.size(); }
    void all_reduce(std::span<float> all, reduction how) const override { comm.all_reduce(host{}, all, how); }
    void all_reduce(std::span<double> all, reduction how) const override { comm.all_reduce(host{}, all, how); }
    void all_gather(bytes mine, room all) const override { comm.all_gather(host{}, mine, all); }
    void all_gather(bytes mine, room all, sizes each) const override { comm.all_gather(host{}, mine, all, each); }
    void broadcast([[maybe_unused]] room in_out, [[maybe_unused]] int root) const override {
      if constexpr (has_broadcast<Comm, host>)
        comm.broadcast(host{}, in_out, root);
      else
        throw communication_error("gradsieve: this communicator has no broadcast");
    }
    void send_receive([[maybe_unused]] bytes out, [[maybe_unused]] int to, [[maybe_unused]] room in,
                      [[maybe_unused]] int from) const override {
      if constexpr (has_send_receive<Comm, host>)
        comm.send_receive(host{}, out, to, in, from);
      else
        throw communication_error("gradsieve: this communicator has no send_receive");
    }
    Comm comm;
  };

  std::shared_ptr<transport const> how_;
};
static_assert(has_all_gather<any_communicator, host> && has_broadcast<any_communicator, host>);

// ---- A menu, and a recipe of it --------------------------------------------------------------------------------

/// Every policy that a recipe text can name. A program that needs fewer defines a menu of its own with shorter lists,
/// each with its default first. Compile time grows with the number of selectors and codecs, and with the product of the
/// numbers of partitioners and residual stores, as a step is compiled for each pair.
struct full_menu {
  /// Selectors without bins.
  using selectors =
      type_list<radix, hierarchical, laplacian, trimmed, threshold_search, ldte, sidco, one_sign, random_k>;
  /// Partitioners.
  using partitioners = type_list<whole, layerwise, deft, cyclic, micro>;
  /// Residual stores.
  using residuals = type_list<error_feedback, none, momentum_correction, filtered>;
  /// Index codecs of packed.
  using indices = type_list<automatic, raw32, delta, elias_fano, bitmap, fixed_width>;
  /// Value codecs of packed.
  using values = type_list<fp32, fp16, bf16, int8, int4, int2, ternary, sign, sbc, qsgd, automatic_values>;
};

namespace detail {

template <template <class...> class Any, class List>
struct any_of_list;
template <template <class...> class Any, class... Types>
struct any_of_list<Any, type_list<Types...>> {
  using type = Any<Types...>;
};
template <template <class...> class Any, class List>
using any_of = typename any_of_list<Any, List>::type;

template <class... A, class... B>
type_list<A..., B...> operator+(type_list<A...>, type_list<B...>);

/// Those of a list for which the predicate holds.
template <template <class> class Predicate, class List>
struct those;
template <template <class> class Predicate, class... Types>
struct those<Predicate, type_list<Types...>> {
  using type =
      decltype((type_list<>{} + ... + std::conditional_t<Predicate<Types>::value, type_list<Types>, type_list<>>{}));
};
/// Whether values of this codec can be summed.
template <class Values>
struct is_summed : std::bool_constant<elementwise_values<Values>> {};
/// Whether they then lose bits.
template <class Values>
struct is_summed_rounded : std::bool_constant<elementwise_values<Values> && quantises<Values>> {};

}  // namespace detail

/// A recipe of policies that are chosen at run time, from a menu. What does not fit together is an exception here,
/// where recipe is a compiler's error.
template <class Menu = full_menu>
struct any_recipe {
  density_schedule density = 0.01;                     ///< as recipe::density
  typename Menu::selectors::variant selector{};        ///< one of the menu
  typename Menu::partitioners::variant partitioner{};  ///< one of the menu
  typename Menu::residuals::variant residual{};        ///< one of the menu
  bool plain = true;                                   ///< the codec is coo; else packed with the next two
  typename Menu::indices::variant indices{};           ///< one of the menu
  typename Menu::values::variant values{};             ///< one of the menu
  passthrough_layers passthrough{};                    ///< as recipe::passthrough
  non_finite on_non_finite = non_finite::skip;         ///< as recipe::on_non_finite

  /// Reads a recipe such as "laplacian(tolerance=0.1)+deft+momentum+packed:delta,fp32@0.01": names joined by '+', at
  /// most one of each family and in any order, each with its fields in parentheses; then '@' and the density, a number
  /// or warm_up(initial=0.25,final=0.01,steps=100,stages=4). `packed` has an index and a value codec behind its colon.
  /// A family that is not named has the menu's first; the codec is then coo. The exchanges of deft, cyclic and micro
  /// sum values: with these, packed's values are fp32, fp16 or bf16.
  /// "passthrough:head.*,*.bias" are patterns of layers that pass through, by comma, as in passthrough_layers::patterns;
  /// "passthrough:" is none.
  /// @throws invalid_argument listing the names that there are.
  [[nodiscard]] static any_recipe parse(std::string const& text) {
    any_recipe made;
    auto const at = text.rfind('@');
    if (at != std::string::npos) made.density = read_density(text.substr(at + 1));
    gradsieve::check(made.density);
    bool seen[5] = {};
    for (auto const& token : recipe_text::split(std::string_view{text}.substr(0, at), '+')) made.take(token, seen);
    made.check_pairs();
    return made;
  }

  /// The text that parse() reads as this recipe's policies and density.
  [[nodiscard]] std::string text() const {
    auto const write = [](auto const& of) {
      return std::visit([](auto const& it) { return recipe_text::write_policy(it); }, of);
    };
    auto const codec = plain ? std::string{coo::name} : "packed:" + write(indices) + "," + write(values);
    auto number = plain_text();
    if (warm_up const& ramp = density.ramp(); ramp.steps == 0)
      number << density;
    else
      number << "warm_up(initial=" << shortest{ramp.initial} << ",final=" << shortest{ramp.final}
             << ",steps=" << ramp.steps << ",stages=" << ramp.stages << ')';
    std::string list;
    passthrough_layers const usual;
    if (passthrough.patterns != usual.patterns) {
      for (auto const& pattern : passthrough.patterns) list += (list.empty() ? "" : ",") + pattern;
      list = "+passthrough:" + list;
    }
    return write(selector) + "+" + write(partitioner) + "+" + write(residual) + "+" + codec + list + "@" + number.str();
  }

  /// The names that parse() knows, by family.
  [[nodiscard]] static std::string names() {
    using recipe_text::names_of;
    return "selectors " + names_of(typename Menu::selectors{}) + "; partitioners " +
           names_of(typename Menu::partitioners{}) + "; residuals " + names_of(typename Menu::residuals{}) +
           "; codecs coo, packed:INDICES,VALUES with indices " + names_of(typename Menu::indices{}) + " and values " +
           names_of(typename Menu::values{});
  }

  friend bool operator==(any_recipe const&, any_recipe const&) = default;

 private:
  /// A number, or warm_up(initial=0.25,final=0.01,steps=100,stages=4).
  [[nodiscard]] static density_schedule read_density(std::string const& text) {
    if (!text.starts_with("warm_up")) return recipe_text::read_number<double>("density", text);
    auto const item = recipe_text::read_item(text);
    warm_up ramp;
    for (auto const& [name, value] : item.options) {
      auto const what = "warm_up's " + name;
      if (name == "initial")
        recipe_text::read_value(what, value, ramp.initial);
      else if (name == "final")
        recipe_text::read_value(what, value, ramp.final);
      else if (name == "steps")
        recipe_text::read_value(what, value, ramp.steps);
      else if (name == "stages")
        recipe_text::read_value(what, value, ramp.stages);
      else
        recipe_text::refuse("warm_up has no '" + name + "'; it has initial, final, steps, stages");
    }
    if (item.name != "warm_up" || ramp.steps == 0)
      recipe_text::refuse("density is '" + text + "', expected a number, or warm_up(initial=..,final=..,steps=..)");
    return ramp;
  }

  void take(std::string const& token, bool (&seen)[5]) {
    auto const once = [&](std::size_t family, char const* what) {
      if (std::exchange(seen[family], true)) recipe_text::refuse(std::string{"two "} + what + " are named");
    };
    if (constexpr std::string_view list = "passthrough:"; token.starts_with(list)) {
      once(4, "lists of layers that pass through");
      passthrough.patterns.clear();
      if (token.size() > list.size())
        passthrough.patterns = recipe_text::split(std::string_view{token}.substr(list.size()), ',');
      return;
    }
    auto const colon = token.find(':');
    if (token.substr(0, colon) == packed<>::name || token == coo::name) {
      once(3, "codecs");
      plain = token == coo::name;
      if (colon == std::string::npos) return;
      auto const parts = recipe_text::split(std::string_view{token}.substr(colon + 1), ',');
      if (parts.size() != 2 ||
          !recipe_text::read_one_of(typename Menu::indices{}, recipe_text::read_item(parts[0]), indices) ||
          !recipe_text::read_one_of(typename Menu::values{}, recipe_text::read_item(parts[1]), values))
        recipe_text::refuse("'" + token + "' is not a codec; there are " + names());
      return;
    }
    auto const item = recipe_text::read_item(token);
    if (recipe_text::read_one_of(typename Menu::selectors{}, item, selector)) return once(0, "selectors");
    if (recipe_text::read_one_of(typename Menu::partitioners{}, item, partitioner)) return once(1, "partitioners");
    if (recipe_text::read_one_of(typename Menu::residuals{}, item, residual)) return once(2, "residuals");
    recipe_text::refuse("'" + item.name + "' is not one of the names: " + names());
  }

  void check_pairs() const {
    std::visit(
        [&]<class Partitioner, class Values>(Partitioner const&, Values const& how) {
          using exchange = typename Partitioner::default_exchange;
          if constexpr (!exchange::encodes && !detail::is_summed<Values>::value)
            if (!plain)
              recipe_text::refuse(
                  std::string{Partitioner::name} + "'s exchange, " + std::string{exchange::name} +
                  ", sums values one by one: the codec is coo here, or packed with values " +
                  recipe_text::names_of(typename detail::those<detail::is_summed, typename Menu::values>::type{}) +
                  ", not " + std::string{how.name});
        },
        partitioner, values);
  }
};

// ---- The compressor ------------------------------------------------------------------------------------------

/// A compressor on the host whose recipe is chosen at run time; see compressor for what each call does and throws. It
/// gives the same bits as the recipe written in C++. Not for concurrent use.
/// Cost: the recipe's, a virtual call per step, and a branch per segment and message. It compiles slowly (every
/// partitioner with every residual store of the menu): include it in one translation unit.
template <class Menu = full_menu>
class any_compressor {
 public:
  using space_type = host;  ///< where it works

  /// As compressor's constructor. @throws invalid_argument
  any_compressor(host where, layout layers, any_recipe<Menu> recipe) : recipe_{std::move(recipe)} {
    std::visit(
        [&](auto const& partitioner, auto const& residual) { make(where, std::move(layers), partitioner, residual); },
        recipe_.partitioner, recipe_.residual);
  }

  /// As compressor::exchange().
  step_report exchange(any_communicator const& comm, std::span<float> gradient) {
    return at_->exchange(comm, gradient, {});
  }
  /// As compressor::exchange() with layers that are skipped.
  step_report exchange(any_communicator const& comm, std::span<float> gradient, skipped_layers const skipped) {
    return at_->exchange(comm, gradient, skipped);
  }
  /// As compressor::compress().
  host_selection compress(std::span<float const> gradient, int rank = 0) { return at_->compress(gradient, rank); }
  /// As compressor::encode().
  [[nodiscard]] std::span<std::byte const> encode(host_selection const& chosen) { return at_->encode(chosen); }
  /// Overwrites the gradient with the mean of messages of such compressors; see averager::apply(). Allocates in the
  /// first call.
  applied_update apply(std::span<std::span<std::byte const> const> messages, std::span<float> gradient) {
    return at_->apply(messages, gradient);
  }
  [[nodiscard]] std::span<float const> residual() { return at_->residual(); }        ///< as compressor::residual()
  [[nodiscard]] std::uint64_t accumulated() const { return at_->accumulated(); }     ///< as compressor::accumulated()
  [[nodiscard]] host where() const { return at_->where(); }                          ///< as at construction
  [[nodiscard]] step_report report() const { return at_->report(); }                 ///< as compressor::report()
  void discard_step() { at_->discard_step(); }                                       ///< as compressor::discard_step()
  void rescale(float factor) { at_->rescale(factor); }                               ///< as compressor::rescale()
  [[nodiscard]] double residual_norm() { return at_->residual_norm(); }              ///< as compressor::residual_norm()
  [[nodiscard]] std::vector<std::byte> state() { return at_->state(); }              ///< as compressor::state()
  void restore(std::span<std::byte const> bytes) { at_->restore(bytes); }            ///< as compressor::restore()
  void absorb(std::span<std::byte const> bytes) { at_->absorb(bytes); }              ///< as compressor::absorb()
  [[nodiscard]] layout const& layers() const { return at_->layers(); }               ///< as compressor::layers()
  [[nodiscard]] any_recipe<Menu> const& recipe() const noexcept { return recipe_; }  ///< the recipe
  /// The same number as recipe::hash() of the recipe written in C++.
  [[nodiscard]] std::uint64_t hash() const { return at_->hash(); }
  /// As compressor::passing().
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(layers(), recipe_.passthrough); }
  /// As compressor::describe().
  [[nodiscard]] std::string describe() const { return at_->describe(); }

 private:
  struct base {
    virtual ~base() = default;
    virtual step_report exchange(any_communicator const&, std::span<float>, skipped_layers) = 0;
    virtual host_selection compress(std::span<float const>, int) = 0;
    virtual std::span<std::byte const> encode(host_selection const&) = 0;
    virtual applied_update apply(std::span<std::span<std::byte const> const>, std::span<float>) = 0;
    virtual std::span<float const> residual() = 0;
    virtual std::uint64_t accumulated() const = 0;
    virtual host where() const = 0;
    virtual step_report report() const = 0;
    virtual void discard_step() = 0;
    virtual void rescale(float) = 0;
    virtual double residual_norm() = 0;
    virtual std::vector<std::byte> state() = 0;
    virtual void restore(std::span<std::byte const>) = 0;
    virtual void absorb(std::span<std::byte const>) = 0;
    virtual layout const& layers() const = 0;
    virtual std::uint64_t hash() const = 0;
    virtual std::string describe() const = 0;
  };

  template <class Recipe>
  struct holder final : base {
    using codec_type = decltype(Recipe::codec);
    holder(host where, layout about, Recipe const& recipe) : space{where}, owner{where, std::move(about), recipe} {}
    step_report exchange(any_communicator const& comm, std::span<float> gradient,
                         skipped_layers const skipped) override {
      return owner.exchange(comm, gradient, skipped);
    }
    host_selection compress(std::span<float const> gradient, int rank) override {
      return owner.compress(gradient, rank);
    }
    std::span<std::byte const> encode(host_selection const& chosen) override { return owner.encode(chosen); }
    applied_update apply(std::span<std::span<std::byte const> const> messages, std::span<float> gradient) override {
      if (!mean) mean = std::make_unique<averager<host, codec_type>>(space, owner.layers(), owner.recipe());
      return mean->apply(messages, gradient);
    }
    std::span<float const> residual() override { return owner.residual(); }
    std::uint64_t accumulated() const override { return owner.accumulated(); }
    host where() const override { return space; }
    step_report report() const override { return owner.report(); }
    void discard_step() override { owner.discard_step(); }
    void rescale(float factor) override { owner.rescale(factor); }
    double residual_norm() override { return owner.residual_norm(); }
    std::vector<std::byte> state() override { return owner.state(); }
    void restore(std::span<std::byte const> bytes) override { owner.restore(bytes); }
    void absorb(std::span<std::byte const> bytes) override { owner.absorb(bytes); }
    layout const& layers() const override { return owner.layers(); }
    std::uint64_t hash() const override { return owner.recipe().hash(); }
    std::string describe() const override { return owner.describe(); }

    host space;
    compressor<host, Recipe> owner;
    std::unique_ptr<averager<host, codec_type>> mean;
  };

  using any_selector_type = detail::any_of<any_selector, typename Menu::selectors>;
  using any_indices_type = detail::any_of<any_indices, typename Menu::indices>;
  using any_values_type = detail::any_of<any_values, typename Menu::values>;

  template <class Partitioner, class Residual>
  void make(host where, layout layers, Partitioner const& partitioner, Residual const& residual) {
    any_selector_type selector;
    selector.chosen = recipe_.selector;
    any_indices_type indices;
    indices.chosen = recipe_.indices;
    auto const with = [&](auto const& codec) {
      using made = gradsieve::recipe<any_selector_type, Partitioner, Residual, std::remove_cvref_t<decltype(codec)>>;
      at_ = std::make_unique<holder<made>>(
          where, std::move(layers),
          made{
              recipe_.density, selector, partitioner, residual, codec, {}, recipe_.passthrough, recipe_.on_non_finite});
    };
    if (recipe_.plain) return with(coo{});
    if constexpr (Partitioner::default_exchange::encodes) {
      any_values_type values;
      values.chosen = recipe_.values;
      with(packed<any_indices_type, any_values_type>{indices, values});
    } else if (std::holds_alternative<fp32>(recipe_.values)) {
      with(packed<any_indices_type, fp32>{indices, {}});
    } else {
      make_summed(with, indices, typename detail::those<detail::is_summed_rounded, typename Menu::values>::type{});
    }
  }

  /// With values that are summed in 16 bits, if the menu has such.
  template <class With, class... Values>
  void make_summed(With const& with, any_indices_type const& indices, type_list<Values...>) {
    if constexpr (sizeof...(Values) > 0) {
      any_summed_values<Values...> values;
      std::visit(
          [&]<class Chosen>(Chosen const& it) {
            if constexpr ((std::is_same_v<Chosen, Values> || ...)) values.chosen = it;
          },
          recipe_.values);
      with(packed<any_indices_type, any_summed_values<Values...>>{indices, values});
    }
  }

  any_recipe<Menu> recipe_;
  std::unique_ptr<base> at_;
};

}  // namespace gradsieve
