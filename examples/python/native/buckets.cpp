// What gradsieve.torch asks of the library, as C functions for ctypes: a model's buckets, and recipes by name. It is no
// public interface: both sides are of one version.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#if defined(GRADSIEVE_C_CUDA)  // nvcc compiles it then; before what is compiled for a device
#include <gradsieve/cuda/selection_stage.cuh>

#include "device_memory.hpp"
#endif

#include "../../c/objects.hpp"
#include "answer.hpp"
#include "bucket_exchange.hpp"
#include "planners.hpp"

namespace {

using namespace example;
using c_interface::guarded;
using c_interface::need;

/// Names and values as text, see wishes.
using told = std::span<char const* const>;

constexpr double default_density = 0.01;

/// What register() was told, apart from the model.
struct wishes {
  std::string recipe;
  policy_options options;
  std::optional<double> density;  ///< none: the default
  double initial_density = 0.01;
  std::uint64_t warmup = 0;
  std::uint64_t warmup_stages = 0;
  names passthrough;
  std::uint64_t passthrough_up_to = 0;
  std::vector<gs::layer> model;
  std::string on_non_finite;
  bool undo = false;
  bool shards = false;

  /// "recipe", "radix", "option", "levels=16", ...; "size", "dimensions" and "other" are of the "layer" before them.
  explicit wishes(told all) {
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
      need(all[i] != nullptr && all[i + 1] != nullptr, "a text");
      take(all[i], all[i + 1]);
    }
  }

 private:
  void take(std::string_view name, std::string const& value) {
    auto const whole = [&] { return read_number<std::uint64_t>(name, value); };
    if (name == "recipe")
      recipe = value;
    else if (name == "option")
      options.emplace_back(value.substr(0, value.find('=')), value.substr(value.find('=') + 1));
    else if (name == "density")
      density = read_number<double>(name, value);
    else if (name == "initial_density")
      initial_density = read_number<double>(name, value);
    else if (name == "warmup")
      warmup = whole();
    else if (name == "warmup_stages")
      warmup_stages = whole();
    else if (name == "passthrough")
      passthrough.push_back(value);
    else if (name == "passthrough_up_to")
      passthrough_up_to = whole();
    else if (name == "on_non_finite")
      on_non_finite = value;
    else if (name == "undo")
      undo = whole() != 0;
    else if (name == "shards")
      shards = whole() != 0;
    else if (name == "layer")
      model.push_back({value, 0});
    else if (name == "size")
      model.at(model.size() - 1).size = whole();
    else if (name == "dimensions")
      model.at(model.size() - 1).dimensions = read_number<std::uint32_t>(name, value);
    else if (name == "other")
      model.at(model.size() - 1).other_names.push_back(value);
    else
      throw usage_error("gradsieve: there is no wish '" + std::string{name} + "'");
  }
};

/// @throws usage_error; std::invalid_argument for a density outside its limits.
compression compression_of(wishes const& asked, bool on_device) {
  auto chosen = parse_compression(asked.recipe, asked.options, on_device);
  bool const fixed = !adapts(chosen.recipe);
  if ((asked.density || asked.warmup > 0) && !fixed)
    throw usage_error("gradsieve: recipe '" + asked.recipe +
                      "' decides for itself how much to send: leave density and warmup out");
  auto const density = asked.density.value_or(default_density);
  gs::density_schedule const schedule = gs::warm_up{asked.initial_density, density, asked.warmup, asked.warmup_stages};
  schedule.check();
  if (density == 1 && fixed) code_all(chosen, asked.recipe, asked.shards);
  chosen.recipe.density = fixed ? schedule : 0.5;
  chosen.recipe.passthrough = {.patterns = asked.passthrough, .up_to = asked.passthrough_up_to};
  chosen.model = gs::layout{asked.model};
  chosen.on_non_finite = asked.on_non_finite == "fail"        ? bad_values::fail
                         : asked.on_non_finite == "propagate" ? bad_values::propagate
                                                              : bad_values::skip;
  if (chosen.on_non_finite != bad_values::skip) chosen.recipe.on_non_finite = gs::non_finite::fail;
  chosen.undo = asked.undo;
  if (asked.shards) leave_shards(chosen);
  return chosen;
}

gs::layout layout_of(gradsieve_layer const* layers, std::size_t count) {
  return c_interface::layout_of(layers, nullptr, count);
}

/// A bucket as the caller has it.
struct bucket {
  bool begins;
  int format;  ///< a gradsieve_format, or float64
  void* values;
  std::size_t size;
  std::span<std::size_t const> members;
  parameter_use use;

  static constexpr int float64 = 3;
};

template <class Space>
void exchange(bucket_exchange<Space>& by, bucket const& one) {
  auto const as = [&](auto* values) { by.exchange(one.begins, std::span{values, one.size}, one.members, one.use); };
  if (one.format == bucket::float64) {
    if constexpr (std::is_same_v<Space, gs::host>) return as(static_cast<double*>(one.values));
    throw gs::invalid_argument("gradsieve: a bucket of float64 is on a device");
  }
  c_interface::with_format(static_cast<gradsieve_format>(one.format), one.values, as);
}

using exchanges = c_interface::in_a_space<bucket_exchange>;

answer& operator<<(answer& out, std::vector<gs::layer> const& layers) {
  for (auto const& each : layers) out << each.name << each.size;
  return out;
}

}  // namespace

/// The buckets of one model.
struct gradsieve_buckets {
  c_interface::pool memory;
  exchanges exchange;
  std::vector<group_state> saved{};  // of gradsieve_buckets_state()
  mutable std::atomic_flag busy{};
};

namespace {

/// in(make) calls make(space, pool).
template <class In>
gradsieve_status create(char const* const* texts, std::size_t count, gradsieve_layer const* layers,
                        std::size_t layer_count, gradsieve_communicator const* ranks,
                        gradsieve_communicator const* inside, void (*warn)(char const*), gradsieve_buckets** made,
                        In const& in) {
  return guarded([&] {
    need(made != nullptr, "made");
    *made = nullptr;
    in([&]<class Space>(Space const& where, c_interface::pool memory) {
      auto chosen = compression_of(wishes{told{texts, count}}, Space::stream_ordered);
      if (warn != nullptr) chosen.warn = [warn](std::string const& text) { warn(text.c_str()); };
      auto const connected = [](gradsieve_communicator const* to) {
        c_interface::ranks_in<Space> made_of;
        made_of.how->connect(to);
        return made_of.comm;
      };
      peers_of<Space> peers = connected(ranks);
      if (inside != nullptr) peers = nodes_of<Space>{connected(inside), connected(ranks)};
      *made = new gradsieve_buckets{
          std::move(memory), exchanges{std::in_place_type<bucket_exchange<Space>>, where, std::move(peers),
                                       layout_of(layers, layer_count), std::move(chosen)}};
    });
  });
}

/// body(bucket_exchange)
template <class Body>
gradsieve_status with(gradsieve_buckets* which, Body const& body) {
  return guarded([&] {
    auto const used = c_interface::use(which, "buckets");
    std::visit(body, which->exchange);
  });
}

/// Groups of parameters as the caller has them.
struct saved_groups {
  std::size_t count;
  std::size_t const* const* members;
  std::size_t const* member_counts;
  void const* const* bytes;
  std::size_t const* sizes;

  [[nodiscard]] std::vector<group_state> states() const {
    std::vector<group_state> all;
    for (std::size_t i = 0; i < count; ++i) {
      auto const from = c_interface::bytes_of(bytes[i], sizes[i]);
      all.push_back({{members[i], members[i] + member_counts[i]}, {from.begin(), from.end()}});
    }
    return all;
  }
};

}  // namespace

extern "C" {

/// The names of a kind: "selectors", "recipes", ...
gradsieve_status gradsieve_buckets_names(char const* kind, char const** to, std::size_t* size) {
  return guarded([&] {
    need(kind != nullptr, "kind");
    std::string_view const which{kind};
    answer all;
    if (which == "selectors")
      all << selector_names;
    else if (which == "partitioners")
      all << partitioner_names;
    else if (which == "residuals")
      all << residual_names;
    else if (which == "index_codecs")
      all << index_codec_names;
    else if (which == "value_codecs")
      all << value_codec_names;
    else if (which == "planners")
      all << planner_names;
    else if (which == "recipes")
      all << offered_recipes();
    else if (which == "biases_and_norms")
      all << gs::biases_and_norms;
    else if (which == "version")
      all << std::to_string(GRADSIEVE_VERSION_MAJOR) + '.' + std::to_string(GRADSIEVE_VERSION_MINOR) + '.' +
                 std::to_string(GRADSIEVE_VERSION_PATCH);
    else
      throw usage_error("gradsieve: there are no " + std::string{which});
    std::move(all).write(to, size);
  });
}

/// Of the policies of a recipe, names and values; see wishes for `texts`.
gradsieve_status gradsieve_buckets_options(char const* const* texts, std::size_t count, int on_device, char const** to,
                                           std::size_t* size) {
  return guarded([&] {
    wishes const asked{told{texts, count}};
    answer all;
    for (auto const& [name, value] : parse_compression(asked.recipe, asked.options, on_device != 0).options)
      all << name << value;
    std::move(all).write(to, size);
  });
}

/// Whether float64 gradients are averaged as they are, and whether an update that is still in the gradient may be
/// exchanged again.
gradsieve_status gradsieve_buckets_treats(char const* const* texts, std::size_t count, int on_device,
                                          int* passes_doubles, int* takes_updates_again) {
  return guarded([&] {
    need(passes_doubles != nullptr && takes_updates_again != nullptr, "passes_doubles or takes_updates_again");
    auto const chosen = compression_of(wishes{told{texts, count}}, on_device != 0);
    *passes_doubles = passes_float64(chosen);
    *takes_updates_again = updates_may_come_again(chosen);
  });
}

/// `ranks`, and with nodes `inside`, are called as long as the buckets exist. `warn` may be null.
gradsieve_status gradsieve_buckets_create(char const* const* texts, std::size_t count, gradsieve_layer const* layers,
                                          std::size_t layer_count, gradsieve_communicator const* ranks,
                                          gradsieve_communicator const* inside, int threads,
                                          void (*warn)(char const*), gradsieve_buckets** made) {
  return create(texts, count, layers, layer_count, ranks, inside, warn, made,
                [&](auto const& make) { make(gs::host{.threads = threads}, c_interface::pool{}); });
}

/// The same in device memory.
gradsieve_status gradsieve_buckets_create_on_device(char const* const* texts, std::size_t count,
                                                    gradsieve_layer const* layers, std::size_t layer_count,
                                                    gradsieve_communicator const* ranks,
                                                    gradsieve_communicator const* inside,
                                                    gradsieve_device const* where, void (*warn)(char const*),
                                                    gradsieve_buckets** made) {
  return create(texts, count, layers, layer_count, ranks, inside, warn, made,
                [&](auto const& make) { c_interface::on_device(where, make); });
}

void gradsieve_buckets_destroy(gradsieve_buckets* which) { delete which; }

/// See bucket_exchange::exchange(). `marks` are parameter_use's, or null; `unused_is_left`, `fixed`, `agreed` as there.
gradsieve_status gradsieve_buckets_exchange(gradsieve_buckets* which, int begins, int format, void* values,
                                            std::size_t size, std::size_t const* members, std::size_t count,
                                            std::uint32_t const* marks, int unused_is_left, int fixed, int agreed) {
  return with(which, [&](auto& by) {
    bucket one{begins != 0, format, values, size, {members, count}, {{}, unused_is_left != 0, fixed != 0, agreed != 0}};
    if (marks != nullptr) one.use.marks.assign(marks, marks + count);
    exchange(by, one);
  });
}

/// "report": names and numbers of the last step and of all; "passing", "layers": names and sizes; "codecs".
gradsieve_status gradsieve_buckets_text(gradsieve_buckets* which, char const* kind, char const** to,
                                        std::size_t* size) {
  return with(which, [&](auto& by) {
    need(kind != nullptr, "kind");
    std::string_view const asked{kind};
    answer all;
    if (asked == "report") {
      auto const found = by.report();
      auto const& totals = by.totals();
      auto const& thresholds = found.thresholds;
      all << "step" << found.step << "world" << found.world << "budget" << found.budget << "selected" << found.selected
          << "passthrough_elements" << found.passthrough_elements << "union_size" << found.union_size << "non_finite"
          << found.non_finite << "saturated" << found.saturated << "thresholds_estimated"
          << thresholds.of(gs::threshold_origin::estimated) << "thresholds_remembered"
          << thresholds.of(gs::threshold_origin::remembered) << "thresholds_corrected"
          << thresholds.of(gs::threshold_origin::corrected) << "threshold_probes" << thresholds.probes << "bytes_sent"
          << found.bytes_sent << "bytes_received" << found.bytes_received << "baseline_bytes" << found.baseline_bytes
          << "seconds_accumulate" << found.seconds.accumulate << "seconds_partition" << found.seconds.partition
          << "seconds_select" << found.seconds.select << "seconds_exchange" << found.seconds.exchange
          << "seconds_apply" << found.seconds.apply << "seconds" << found.seconds.total() << "total_steps"
          << totals.steps << "total_bytes_sent" << totals.bytes_sent << "total_bytes_received" << totals.bytes_received
          << "total_baseline_bytes" << totals.baseline_bytes << "total_non_finite" << totals.non_finite
          << "total_saturated" << totals.saturated << "total_seconds" << totals.seconds;
    } else if (asked == "passing") {
      all << by.passing();
    } else if (asked == "layers") {
      for (auto const& each : by.model()) all << each.name << each.size;
    } else if (asked == "codecs") {
      all << "index_codec" << by.report().message.index_codec;
    } else {
      throw usage_error("gradsieve: there is no text '" + std::string{asked} + "'");
    }
    std::move(all).write(to, size);
  });
}

/// Steps, bytes sent, received and without compression, elements that were not finite and that saturated; and seconds.
gradsieve_status gradsieve_buckets_restore_totals(gradsieve_buckets* which, std::uint64_t const* counts,
                                                  double seconds) {
  return with(which, [&](auto& by) {
    by.restore(running_totals{counts[0], counts[1], counts[2], counts[3], counts[4], counts[5], seconds});
  });
}

/// Keeps the states of all groups for gradsieve_buckets_group(), and writes how many there are; null: frees them.
gradsieve_status gradsieve_buckets_state(gradsieve_buckets* which, std::size_t* groups) {
  return with(which, [&](auto& by) {
    which->saved = groups == nullptr ? std::vector<group_state>{} : by.state();
    if (groups != nullptr) *groups = which->saved.size();
  });
}
/// Of one of them; valid until the next call.
gradsieve_status gradsieve_buckets_group(gradsieve_buckets* which, std::size_t i, std::size_t const** members,
                                         std::size_t* member_count, void const** bytes, std::size_t* size) {
  return with(which, [&](auto&) {
    auto const& one = which->saved.at(i);
    *members = one.members.data();
    *member_count = one.members.size();
    *bytes = one.bytes.data();
    *size = one.bytes.size();
  });
}
/// Goes on from saved groups, or adds what another rank had not sent.
gradsieve_status gradsieve_buckets_take_state(gradsieve_buckets* which, int absorbs, std::size_t count,
                                              std::size_t const* const* members, std::size_t const* member_counts,
                                              void const* const* bytes, std::size_t const* sizes) {
  return with(which, [&](auto& by) {
    auto const states = saved_groups{count, members, member_counts, bytes, sizes}.states();
    if (absorbs != 0)
      by.absorb(states);
    else
      by.restore(states);
  });
}

gradsieve_status gradsieve_buckets_discard_step(gradsieve_buckets* which) {
  return with(which, [](auto& by) { by.discard_step(); });
}
gradsieve_status gradsieve_buckets_undo_step(gradsieve_buckets* which) {
  return with(which, [](auto& by) { by.undo_step(); });
}
gradsieve_status gradsieve_buckets_rescale(gradsieve_buckets* which, float factor, size_t const* members,
                                           size_t count) {
  return with(which, [&](auto& by) { by.rescale(factor, {members, count}); });
}
gradsieve_status gradsieve_buckets_residual_norm(gradsieve_buckets* which, double* norm) {
  return with(which, [&](auto& by) { *norm = by.residual_norm(); });
}
/// Where what was not sent of each parameter lies, in the model's order; null before its first exchange.
gradsieve_status gradsieve_buckets_residuals(gradsieve_buckets* which, float const** to, std::size_t const* sizes,
                                             std::size_t count) {
  return with(which, [&](auto& by) {
    auto const all = by.residuals();
    if (all.size() != count) throw gs::invalid_argument("gradsieve: there are other parameters");
    for (std::size_t i = 0; i < count; ++i) {
      if (!all[i].empty() && all[i].size() != sizes[i])
        throw gs::invalid_argument("gradsieve: a parameter has another size");
      to[i] = all[i].data();
    }
  });
}

}  // extern "C"
