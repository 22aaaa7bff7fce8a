// A compressor behind virtual functions, for gradients of several formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::detail {

template <class T, class List>
inline constexpr bool holds = false;
template <class T, class... Types>
inline constexpr bool holds<T, type_list<Types...>> = (std::is_same_v<T, Types> || ...);

/// A compressor for gradients of these formats.
template <class Formats>
struct any_step;
template <class... T>
struct any_step<type_list<T...>> {
  using gradient = std::variant<gradient_ref<T>...>;
  using constant_gradient = std::variant<gradient_ref<T const>...>;

  virtual ~any_step() = default;
  virtual step_report exchange(any_communicator const&, gradient const&, skipped_layers) = 0;
  virtual void fail(any_communicator const&, gradient const&) = 0;
  virtual host_selection compress(constant_gradient const&, int) = 0;
  virtual applied_update apply(std::span<std::span<std::byte const> const>, gradient const&) = 0;
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

/// The compressor of a recipe, and an averager of its messages once one is asked for.
template <class Recipe, class Formats>
class any_step_of final : public any_step<Formats> {
 public:
  using base = any_step<Formats>;
  using gradient = typename base::gradient;

  any_step_of(host where, layout about, Recipe const& recipe)
      : space_{where}, reducer_{where, std::move(about), recipe} {}

  step_report exchange(any_communicator const& comm, gradient const& all, skipped_layers skipped) override {
    return std::visit([&](auto values) { return reducer_.exchange(comm, values, skipped); }, all);
  }
  void fail(any_communicator const& comm, gradient const& all) override {
    std::visit([&](auto values) { reducer_.fail(comm, values); }, all);
  }
  host_selection compress(typename base::constant_gradient const& all, int rank) override {
    return std::visit([&](auto values) { return reducer_.compress(values, rank); }, all);
  }
  applied_update apply(std::span<std::span<std::byte const> const> messages, gradient const& all) override {
    if (!mean_) mean_ = std::make_unique<averager<host, codec_type>>(space_, reducer_.layers(), reducer_.recipe());
    return std::visit([&](auto values) { return mean_->apply(messages, values); }, all);
  }
  std::span<std::byte const> encode(host_selection const& chosen) override { return reducer_.encode(chosen); }
  std::span<float const> residual() override { return reducer_.residual(); }
  std::uint64_t accumulated() const override { return reducer_.accumulated(); }
  host where() const override { return space_; }
  step_report report() const override { return reducer_.report(); }
  void discard_step() override { reducer_.discard_step(); }
  void rescale(float factor) override { reducer_.rescale(factor); }
  double residual_norm() override { return reducer_.residual_norm(); }
  std::vector<std::byte> state() override { return reducer_.state(); }
  void restore(std::span<std::byte const> bytes) override { reducer_.restore(bytes); }
  void absorb(std::span<std::byte const> bytes) override { reducer_.absorb(bytes); }
  layout const& layers() const override { return reducer_.layers(); }
  std::uint64_t hash() const override { return reducer_.recipe().hash(); }
  std::string describe() const override { return reducer_.describe(); }

 private:
  using codec_type = decltype(Recipe::codec);

  host space_;
  compressor<host, Recipe> reducer_;
  std::unique_ptr<averager<host, codec_type>> mean_;
};

}  // namespace gradsieve::detail
