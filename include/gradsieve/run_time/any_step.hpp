// A compressor behind virtual functions, for gradients of several formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::detail {

template <class T, class List>
inline constexpr bool holds = false;
template <class T, class... Types>
inline constexpr bool holds<T, type_list<Types...>> = (std::is_same_v<T, Types> || ...);

/// What depends on the gradient's format.
template <class T>
struct any_step_of {
  virtual ~any_step_of() = default;
  virtual step_report exchange(any_communicator const&, gradient_ref<T>, skipped_layers) = 0;
  virtual void fail(any_communicator const&, gradient_ref<T>) = 0;
  virtual host_selection compress(gradient_ref<T const>, int) = 0;
  virtual applied_update apply(std::span<std::span<std::byte const> const>, gradient_ref<T>) = 0;
};

/// A compressor for gradients of these formats.
template <class Formats>
struct any_step;
template <class... T>
struct any_step<type_list<T...>> : any_step_of<T>... {
  virtual std::span<std::byte const> encode(host_selection const&) = 0;
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

/// A recipe's compressor and averager.
template <class Recipe>
struct any_step_owner {
  using codec_type = decltype(Recipe::codec);

  any_step_owner(host where, layout about, Recipe const& recipe)
      : space{where}, reducer{where, std::move(about), recipe} {}

  template <class T>
  applied_update apply(std::span<std::span<std::byte const> const> messages, gradient_ref<T> const gradient) {
    if (!mean) mean = std::make_unique<averager<host, codec_type>>(space, reducer.layers(), reducer.recipe());
    return mean->apply(messages, gradient);
  }

  host space;
  compressor<host, Recipe> reducer;
  std::unique_ptr<averager<host, codec_type>> mean;
};

/// Implements any_step_of for each format, one after the other, on `owner`.
template <class Recipe, class Base, class... Formats>
struct any_step_formats : Base {
  template <class... Arguments>
  explicit any_step_formats(Arguments&&... arguments) : owner(std::forward<Arguments>(arguments)...) {}
  any_step_owner<Recipe> owner;
};
template <class Recipe, class Base, class T, class... Rest>
struct any_step_formats<Recipe, Base, T, Rest...> : any_step_formats<Recipe, Base, Rest...> {
  using next = any_step_formats<Recipe, Base, Rest...>;
  using next::next;
  step_report exchange(any_communicator const& comm, gradient_ref<T> gradient, skipped_layers skipped) override {
    return this->owner.reducer.exchange(comm, gradient, skipped);
  }
  void fail(any_communicator const& comm, gradient_ref<T> gradient) override {
    this->owner.reducer.fail(comm, gradient);
  }
  host_selection compress(gradient_ref<T const> gradient, int rank) override {
    return this->owner.reducer.compress(gradient, rank);
  }
  applied_update apply(std::span<std::span<std::byte const> const> messages, gradient_ref<T> gradient) override {
    return this->owner.apply(messages, gradient);
  }
};

/// The compressor of a recipe, for gradients of these formats.
template <class Recipe, class Formats>
struct any_step_holder;
template <class Recipe, class... T>
struct any_step_holder<Recipe, type_list<T...>> final : any_step_formats<Recipe, any_step<type_list<T...>>, T...> {
  using next = any_step_formats<Recipe, any_step<type_list<T...>>, T...>;
  using next::next;

  std::span<std::byte const> encode(host_selection const& chosen) override { return reducer().encode(chosen); }
  std::span<float const> residual() override { return reducer().residual(); }
  std::uint64_t accumulated() const override { return this->owner.reducer.accumulated(); }
  host where() const override { return this->owner.space; }
  step_report report() const override { return this->owner.reducer.report(); }
  void discard_step() override { reducer().discard_step(); }
  void rescale(float factor) override { reducer().rescale(factor); }
  double residual_norm() override { return reducer().residual_norm(); }
  std::vector<std::byte> state() override { return reducer().state(); }
  void restore(std::span<std::byte const> bytes) override { reducer().restore(bytes); }
  void absorb(std::span<std::byte const> bytes) override { reducer().absorb(bytes); }
  layout const& layers() const override { return this->owner.reducer.layers(); }
  std::uint64_t hash() const override { return this->owner.reducer.recipe().hash(); }
  std::string describe() const override { return this->owner.reducer.describe(); }

 private:
  [[nodiscard]] compressor<host, Recipe>& reducer() noexcept { return this->owner.reducer; }
};

}  // namespace gradsieve::detail
