// What gradsieve::compiled has of light.hpp.
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/compiled_recipe.hpp>
#include <gradsieve/run_time/make_step.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

static_assert(std::is_same_v<compiled_menu::selectors, full_menu::selectors> &&
                  std::is_same_v<compiled_menu::partitioners, full_menu::partitioners> &&
                  std::is_same_v<compiled_menu::residuals, full_menu::residuals> &&
                  std::is_same_v<compiled_menu::indices, full_menu::indices> &&
                  std::is_same_v<compiled_menu::values, full_menu::values> &&
                  std::is_same_v<compiled_menu::exchanges, full_menu::exchanges> &&
                  std::is_same_v<compiled_menu::formats, full_menu::formats>,
              "run_time/compiled_recipe.hpp has other lists than full_menu: write there what is in run_time/menu.hpp");

struct compiled_recipe::parts {
  any_recipe<> all;
};

namespace {

template <class... Types>
void set_place(std::variant<Types...>& to, std::size_t place, void const* policy) {
  std::size_t i = 0;
  auto const set = [&]<class T>(std::type_identity<T>) {
    if (i++ == place) to = *static_cast<T const*>(policy);
  };
  (set(std::type_identity<Types>{}), ...);
}

}  // namespace

compiled_recipe::compiled_recipe() : parts_{std::make_unique<parts>()} {}
compiled_recipe::~compiled_recipe() = default;

void compiled_recipe::set_common(density_schedule const& density, passthrough_layers const& passthrough,
                                 non_finite on_non_finite) {
  parts_->all.density = density;
  parts_->all.passthrough = passthrough;
  parts_->all.on_non_finite = on_non_finite;
}

void compiled_recipe::set_packed() { parts_->all.codec = codec_kind::packed; }
void compiled_recipe::set_binned() { parts_->all.codec = codec_kind::binned; }

void compiled_recipe::set_policy(policy_family family, std::size_t place, void const* policy) {
  auto& all = parts_->all;
  switch (family) {
    case policy_family::selector:
      return set_place(all.selector, place, policy);
    case policy_family::partitioner:
      return set_place(all.partitioner, place, policy);
    case policy_family::residual:
      return set_place(all.residual, place, policy);
    case policy_family::indices:
      return set_place(all.indices, place, policy);
    case policy_family::values:
      return set_place(all.values, place, policy);
    case policy_family::exchange:
      return set_place(all.exchange, place + 1, policy);  // behind of_partitioner
  }
}

std::unique_ptr<compiled_recipe::step> compiled_recipe::make_step(host where, layout layers) const {
  parts_->all.check();
  return detail::make_step(where, std::move(layers), parts_->all, static_cast<any_nodes<host> const*>(nullptr));
}

}  // namespace gradsieve::detail
