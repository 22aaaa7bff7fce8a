// Every recipe's compressor is compiled here, without torch.
#include "any_compressor.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace example {
namespace {

template <class Compressor>
class erased final : public any_compressor {
 public:
  explicit erased(Compressor compressor) : compressor_{std::move(compressor)} {}

  gs::step_report exchange(communicator const& comm, std::span<float> gradient) override {
    return compressor_.exchange(comm, gradient);
  }
  gs::step_report exchange(communicator const& comm, std::span<gs::float16> gradient) override {
    return compressor_.exchange(comm, gradient);
  }
  gs::step_report exchange(communicator const& comm, std::span<gs::bfloat16> gradient) override {
    return compressor_.exchange(comm, gradient);
  }
  void discard_step() override { compressor_.discard_step(); }
  void rescale(float factor) override { compressor_.rescale(factor); }
  double residual_norm() override { return compressor_.residual_norm(); }
  std::vector<std::byte> state() override { return compressor_.state(); }
  void restore(std::span<std::byte const> bytes) override { compressor_.restore(bytes); }
  void absorb(std::span<std::byte const> bytes) override { compressor_.absorb(bytes); }
  [[nodiscard]] gs::layout const& layers() const override { return compressor_.layers(); }

 private:
  Compressor compressor_;
};

/// Takes the name out of `tokens` if it is one of the choices. @throws usage_error if there are two.
std::optional<std::size_t> take(names& tokens, names const& choices, std::string const& recipe) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < choices.size(); ++i)
    if (auto const count = std::erase(tokens, choices[i]); count > 0) {
      if (found || count > 1) throw usage_error("recipe '" + recipe + "' names two of " + joined(choices));
      found = i;
    }
  return found;
}

}  // namespace

compression parse_compression(std::string const& recipe, policy_defaults const& open) {
  auto tokens = split(recipe, '+');
  auto const whole = take(tokens, {"coo", "binned"}, recipe);
  auto const indices = take(tokens, index_codec_names, recipe);
  auto const values = take(tokens, value_codec_names, recipe);
  if (whole && (indices || values))
    throw usage_error("recipe '" + recipe + "': coo and binned have indices and values of their own");
  if (tokens.empty()) tokens.push_back(open.selector);
  compression chosen{.policies = parse_policies(joined(tokens, "+"), open), .codec = {}, .dense = {}};
  auto const* const adaptive = std::get_if<gs::adacomp>(&chosen.policies.selector);
  if (whole == 1 && !adaptive) throw usage_error("recipe '" + recipe + "': binned goes with adacomp");
  if (whole == 1 || (adaptive && !whole && !indices && !values))
    chosen.codec = any_codec::binned(adaptive->bins);
  else if (!whole)
    chosen.codec = any_codec::packed(indices.value_or(0), values.value_or(0));
  return chosen;
}

std::unique_ptr<any_compressor> make_compressor(compression const& chosen, gs::layout const& layers) {
  return chosen.policies.visit([&](auto selector, auto partitioner, auto residual) -> std::unique_ptr<any_compressor> {
    auto recipe = gs::recipe{
        .density =
            gs::warm_up{.initial = std::max(0.25, chosen.density), .final = chosen.density, .steps = chosen.warmup},
        .selector = selector,
        .partitioner = partitioner,
        .residual = residual,
        .codec = chosen.codec,
        .dense = gs::dense_layers{.patterns = chosen.dense, .up_to = 0},
        .on_non_finite = chosen.on_non_finite == bad_values::skip ? gs::non_finite::skip : gs::non_finite::fail};
    if constexpr (std::is_same_v<decltype(selector), gs::adacomp>)
      recipe.density = gs::warm_up{.initial = 0.5, .final = 0.5};
    using owner = decltype(gs::compressor{gs::host{}, layers, recipe});
    return std::make_unique<erased<owner>>(owner{gs::host{.threads = chosen.threads}, layers, recipe});
  });
}

}  // namespace example
