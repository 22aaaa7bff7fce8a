// The Python module gradsieve_ddp._native: a hook for DistributedDataParallel, by its public route and below Python.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <gradsieve/core/process.hpp>

#include "hook.hpp"
#include "planners.hpp"
#include "shard_hook.hpp"

#if defined(GRADSIEVE_TORCH_CUDA)
#include "device_hook.hpp"
#endif

namespace py = pybind11;

namespace {

using namespace example;

/// How a hook ends. Python's lock is let go meanwhile: the hook's thread may be waiting for it. In a child of fork()
/// nothing is done: the threads of the hook and of its process group are in the parent.
struct hook_deleter {
  std::int64_t process = gs::process_id();

  template <class Hook>
  void operator()(Hook* target) const {
    if (process != gs::process_id()) return;
    if (PyGILState_Check() != 0) {
      py::gil_scoped_release const release;
      delete target;
    } else {
      delete target;
    }
  }
};

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
  std::vector<std::tuple<std::string, std::uint64_t, std::uint32_t, names>> model;  ///< see _passthrough.py
  std::string on_non_finite;
  bool undo = false;
};

/// Whether the interpreter is about to end: a thread that asks for its lock then does not come back.
bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

/// Python's warnings.warn(), from any thread.
void warn(std::string const& text) {
  if (interpreter_ends()) return;
  py::gil_scoped_acquire const acquire;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0)  // where warnings are errors
    py::error_already_set{}.discard_as_unraisable("gradsieve_ddp: a warning");
}

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
  if (chosen.names_codec && density == 1 && asked.warmup == 0 && fixed)
    throw usage_error("gradsieve: recipe '" + asked.recipe +
                      "' names a codec, which density 1 does not use: all elements are sent in full, as binary32");
  chosen.recipe.density = fixed ? schedule : 0.5;
  chosen.recipe.passthrough = {.patterns = asked.passthrough, .up_to = asked.passthrough_up_to};
  std::vector<gs::layer> layers;
  for (auto const& [name, size, dimensions, others] : asked.model) layers.push_back({name, size, dimensions, others});
  chosen.model = gs::layout{std::move(layers)};
  chosen.on_non_finite = asked.on_non_finite == "fail"        ? bad_values::fail
                         : asked.on_non_finite == "propagate" ? bad_values::propagate
                                                              : bad_values::skip;
  if (chosen.on_non_finite != bad_values::skip) chosen.recipe.on_non_finite = gs::non_finite::fail;
  chosen.warn = warn;
  chosen.undo = asked.undo;
  return chosen;
}

process_group group_of(c10d::ProcessGroup& group) {
  return process_group{c10::intrusive_ptr<c10d::ProcessGroup>::unsafe_reclaim_from_nonowning(&group)};
}

/// All ranks of one group; or, of two, those of a node and those of one place in their nodes.
template <class Space>
peers_of<Space> peers_in(c10d::ProcessGroup& group, c10d::ProcessGroup* inside) {
  auto all = communicator_of<Space>{group_of(group)};
  if (inside == nullptr) return all;
  return nodes_of<Space>{communicator_of<Space>{group_of(*inside)}, std::move(all)};
}

std::string text_of(std::exception_ptr const& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (std::exception const& error) {
    return error.what();
  } catch (...) {
    return "gradsieve: unknown error";
  }
}

/// A transport's words need not be UTF-8.
py::object text_for_python(std::string const& text) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<py::ssize_t>(text.size()), "replace"));
}

/// `when_done(None or why it failed)` is called by the hook's thread.
void start(hook& target, c10d::GradBucket& bucket, py::object when_done) {
  auto* const callback = when_done.release().ptr();
  target.start(bucket, [callback](std::exception_ptr const& failure) {
    py::gil_scoped_acquire const acquire;
    auto const call = py::reinterpret_steal<py::object>(callback);
    try {
      call(failure ? text_for_python(text_of(failure)) : py::none());
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("gradsieve_ddp: a bucket is done");
    }
  });
}

/// Below Python: DDP calls it without Python's lock.
class native_route final : public c10d::CommHookInterface {
 public:
  explicit native_route(std::shared_ptr<hook> target) : target_{std::move(target)} {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    target_->start(bucket, [future, buffer = bucket.getBuffer()](std::exception_ptr const& failure) {
      if (failure)
        future->setError(failure);
      else
        future->markCompleted(buffer);
    });
    return future;
  }
  at::Tensor parseHookResult(c10::IValue const& result) override { return result.toTensor(); }

 private:
  std::shared_ptr<hook> target_;
};

/// States of groups: tensors of bytes, or as older versions saved them Python's bytes.
using saved = std::vector<std::pair<std::vector<std::size_t>, py::object>>;

std::vector<std::byte> bytes_of(py::handle state) {
  auto const copied = [](auto const& view) { return std::vector<std::byte>{view.begin(), view.end()}; };
  if (py::isinstance<py::bytes>(state))
    return copied(std::as_bytes(std::span{std::string_view{py::reinterpret_borrow<py::bytes>(state)}}));
  if (!THPVariable_Check(state.ptr()))
    throw std::invalid_argument("gradsieve: a saved group is neither a tensor nor bytes");
  auto const tensor = THPVariable_Unpack(state.ptr()).to(at::kCPU).contiguous();
  if (tensor.scalar_type() != at::kByte)
    throw std::invalid_argument("gradsieve: a saved group is a tensor of " +
                                std::string{toString(tensor.scalar_type())} + ", expected Byte");
  return copied(std::span{static_cast<std::byte const*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())});
}

std::vector<group_state> states_of(saved const& groups) {
  std::vector<group_state> states;
  for (auto const& [members, state] : groups) states.push_back({members, bytes_of(state)});
  return states;
}

/// A tensor that owns the bytes.
at::Tensor tensor_of(std::vector<std::byte> bytes) {
  auto* const held = new std::vector<std::byte>{std::move(bytes)};
  return at::from_blob(
      held->data(), {static_cast<std::int64_t>(held->size())}, [held](void*) { delete held; },
      at::TensorOptions{}.dtype(at::kByte));
}

template <class Hook>
saved state(Hook& target) {
  auto states = [&] {
    py::gil_scoped_release const release;
    return target.between_steps([](auto& exchange) { return exchange.state(); });
  }();
  saved groups;
  for (auto& each : states) groups.emplace_back(each.members, py::cast(tensor_of(std::move(each.bytes))));
  return groups;
}

template <class Hook>
py::dict report(Hook& target) {
  auto const [found, totals] = [&] {
    py::gil_scoped_release const release;
    return target.between_steps([](auto& exchange) { return std::pair{exchange.report(), exchange.totals()}; });
  }();
  auto const ratio = [](std::uint64_t before, std::uint64_t after) {
    return after == 0 ? 0.0 : static_cast<double>(before) / static_cast<double>(after);
  };
  using namespace py::literals;
  return py::dict{"step"_a = found.step,
                  "world"_a = found.world,
                  "budget"_a = found.budget,
                  "selected"_a = found.selected,
                  "passthrough_elements"_a = found.passthrough_elements,
                  "union_size"_a = found.union_size,
                  "non_finite"_a = found.non_finite,
                  "saturated"_a = found.saturated,
                  "thresholds_estimated"_a = found.thresholds.of(gs::threshold_origin::estimated),
                  "thresholds_remembered"_a = found.thresholds.of(gs::threshold_origin::remembered),
                  "thresholds_corrected"_a = found.thresholds.of(gs::threshold_origin::corrected),
                  "threshold_probes"_a = found.thresholds.probes,
                  "bytes_sent"_a = found.bytes_sent,
                  "bytes_received"_a = found.bytes_received,
                  "baseline_bytes"_a = found.baseline_bytes,
                  "ratio"_a = ratio(found.baseline_bytes, found.bytes_sent),
                  "seconds_accumulate"_a = found.seconds.accumulate,
                  "seconds_partition"_a = found.seconds.partition,
                  "seconds_select"_a = found.seconds.select,
                  "seconds_exchange"_a = found.seconds.exchange,
                  "seconds_apply"_a = found.seconds.apply,
                  "seconds"_a = found.seconds.total(),
                  "total_steps"_a = totals.steps,
                  "total_bytes_sent"_a = totals.bytes_sent,
                  "total_bytes_received"_a = totals.bytes_received,
                  "total_baseline_bytes"_a = totals.baseline_bytes,
                  "total_ratio"_a = ratio(totals.baseline_bytes, totals.bytes_sent),
                  "total_non_finite"_a = totals.non_finite,
                  "total_saturated"_a = totals.saturated,
                  "total_seconds"_a = totals.seconds};
}

/// The codecs that wrote the last message, where the recipe leaves a choice.
template <class Hook>
py::dict codecs(Hook& target) {
  auto const message = [&] {
    py::gil_scoped_release const release;
    return target.between_steps([](auto& exchange) { return exchange.report().message; });
  }();
  using namespace py::literals;
  return py::dict{"index_codec"_a = message.index_codec};
}

template <class Hook, class Layers>
std::vector<std::pair<std::string, std::uint64_t>> names_and_sizes(Hook& target, Layers const& layers) {
  py::gil_scoped_release const release;
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (auto const& each : target.between_steps(layers)) all.emplace_back(each.name, each.size);
  return all;
}

using saved_totals =
    std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, double>;

/// What hosts' and devices' hooks have alike.
template <class Hook, class Class>
void define_common(Class& type) {
  using unlocked = py::call_guard<py::gil_scoped_release>;
  type.def("report", &report<Hook>)
      .def("codecs", &codecs<Hook>)
      .def("passing",
           [](Hook& target) { return names_and_sizes(target, [](auto& exchange) { return exchange.passing(); }); })
      .def("layers",
           [](Hook& target) { return names_and_sizes(target, [](auto& exchange) { return exchange.model(); }); })
      .def("totals",
           [](Hook& target) {
             py::gil_scoped_release const release;
             return target.between_steps([](auto& exchange) {
               auto const& all = exchange.totals();
               return saved_totals{all.steps,      all.bytes_sent, all.bytes_received, all.baseline_bytes,
                                   all.non_finite, all.saturated,  all.seconds};
             });
           })
      .def("restore_totals",
           [](Hook& target, saved_totals const& all) {
             py::gil_scoped_release const release;
             target.between_steps([&](auto& exchange) {
               exchange.restore(std::apply([](auto... each) { return running_totals{each...}; }, all));
             });
           })
      .def("state", &state<Hook>)
      .def("restore",
           [](Hook& target, saved const& groups) {
             auto const states = states_of(groups);
             py::gil_scoped_release const release;
             target.between_steps([&](auto& exchange) { exchange.restore(states); });
           })
      .def("absorb",
           [](Hook& target, saved const& groups) {
             auto const states = states_of(groups);
             py::gil_scoped_release const release;
             target.between_steps([&](auto& exchange) { exchange.absorb(states); });
           })
      .def(
          "discard_step", [](Hook& target) { target.between_steps([](auto& exchange) { exchange.discard_step(); }); },
          unlocked{})
      .def(
          "undo_step", [](Hook& target) { target.between_steps([](auto& exchange) { exchange.undo_step(); }); },
          unlocked{})
      .def(
          "rescale",
          [](Hook& target, float factor) { target.between_steps([&](auto& exchange) { exchange.rescale(factor); }); },
          unlocked{})
      .def(
          "residual_norm",
          [](Hook& target) { return target.between_steps([](auto& exchange) { return exchange.residual_norm(); }); },
          unlocked{});
}

/// Copies what has not been sent of each parameter to a tensor of float, in the model's order.
template <class Hook>
void copy_residual(Hook& target, std::vector<at::Tensor> const& to) {
  std::vector<std::span<float>> spans;
  for (auto const& each : to) {
    if (each.scalar_type() != at::kFloat || !each.is_contiguous())
      throw std::invalid_argument("gradsieve: expected contiguous tensors of float");
    spans.emplace_back(static_cast<float*>(each.data_ptr()), static_cast<std::size_t>(each.numel()));
  }
  target.copy_residual(spans);
}

#if defined(GRADSIEVE_TORCH_CUDA)
/// As native_route, on a GPU: the future carries the event behind which the bucket is averaged.
class native_device_route final : public c10d::CommHookInterface {
 public:
  explicit native_device_route(std::shared_ptr<device_hook> target) : target_{std::move(target)} {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(),
                                                           std::vector<c10::Device>{bucket.getBuffer().device()});
    target_->start(bucket);
    c10::cuda::CUDAStreamGuard const guard{target_->stream()};
    future->markCompleted(bucket.getBuffer());
    return future;
  }
  at::Tensor parseHookResult(c10::IValue const& result) override { return result.toTensor(); }

 private:
  std::shared_ptr<device_hook> target_;
};
#endif

template <class Route, class Hook>
void attach(std::shared_ptr<Hook> const& target, std::shared_ptr<c10d::Reducer> const& reducer) {
  reducer->register_comm_hook(std::make_unique<Route>(target));
}

/// The policies' options of a recipe, and their values as text. @throws usage_error
policy_options options_of(std::string const& recipe, policy_options const& options, bool on_device) {
  auto const chosen = parse_compression(recipe, options, on_device);
  return chosen.options;
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  auto const names_of = [](names const& all) { return all; };
  module.attr("selectors") = names_of(selector_names);
  module.attr("partitioners") = names_of(partitioner_names);
  module.attr("residuals") = names_of(residual_names);
  module.attr("index_codecs") = names_of(index_codec_names);
  module.attr("value_codecs") = names_of(value_codec_names);
  module.attr("biases_and_norms") = gs::biases_and_norms;
  module.def("recipes", &offered_recipes);
  module.def("parameters_of", [](std::shared_ptr<c10d::Reducer> const& reducer) {
    return (*reducer).*example::reducer_members::parameters;
  });
  module.def("passes_float64",
             [](wishes const& asked) { return example::passes_float64(compression_of(asked, false)); });
  module.def("options", &options_of, py::arg("recipe"), py::arg("options"), py::arg("on_device"));
  example::define_planners(module);

  py::class_<wishes>(module, "Wishes")
      .def(py::init<>())
      .def_readwrite("recipe", &wishes::recipe)
      .def_readwrite("options", &wishes::options)
      .def_readwrite("density", &wishes::density)
      .def_readwrite("initial_density", &wishes::initial_density)
      .def_readwrite("warmup", &wishes::warmup)
      .def_readwrite("warmup_stages", &wishes::warmup_stages)
      .def_readwrite("passthrough", &wishes::passthrough)
      .def_readwrite("model", &wishes::model)
      .def_readwrite("passthrough_up_to", &wishes::passthrough_up_to)
      .def_readwrite("on_non_finite", &wishes::on_non_finite)
      .def_readwrite("undo", &wishes::undo);

  py::class_<hook, std::shared_ptr<hook>> type(module, "Hook");
  type.def(py::init([](std::shared_ptr<c10d::Reducer> const& reducer, wishes const& asked, c10d::ProcessGroup& group,
                       c10d::ProcessGroup* inside, std::vector<at::Tensor> const& parameters,
                       names const& parameter_names, int threads) {
             return std::shared_ptr<hook>{new hook{reducer, peers_in<gs::host>(group, inside), parameters,
                                                   parameter_names, threads, compression_of(asked, false)},
                                          hook_deleter{}};
           }),
           py::kw_only(), py::arg("reducer"), py::arg("wishes"), py::arg("group"), py::arg("inside"),
           py::arg("parameters"), py::arg("names"), py::arg("threads"))
      .def("start", &start)
      .def("end_calls", &hook::end_calls, py::call_guard<py::gil_scoped_release>())
      .def("keep_times",
           [](hook& target, bool keep) {
             auto const found = [&] {
               py::gil_scoped_release const release;
               return target.keep_times(keep);
             }();
             std::vector<std::tuple<std::size_t, double, double>> times;
             for (auto const& each : found) times.emplace_back(each.bytes, each.begin, each.end);
             return times;
           })
      .def("copy_residual", &copy_residual<hook>, py::call_guard<py::gil_scoped_release>())
      .def("attach", &attach<native_route, hook>);
  define_common<hook>(type);

  py::class_<shard_hook, std::shared_ptr<shard_hook>> shard_type(module, "ShardHook");
  shard_type
      .def(py::init([](wishes const& asked, c10d::ProcessGroup& group, bool shards,
                       std::vector<std::uint64_t> const& sizes, names const& piece_names,
                       std::vector<std::size_t> const& counts, int threads) {
             std::vector<gs::layer> pieces;
             for (std::size_t i = 0; i < sizes.size(); ++i) pieces.push_back({piece_names.at(i), sizes[i]});
             auto chosen = compression_of(asked, false);
             if (shards) leave_shards(chosen);
             return std::shared_ptr<shard_hook>{new shard_hook{peers_in<gs::host>(group, nullptr),
                                                               gs::layout{std::move(pieces)}, counts, threads,
                                                               std::move(chosen)},
                                                hook_deleter{}};
           }),
           py::kw_only(), py::arg("wishes"), py::arg("group"), py::arg("shards"), py::arg("sizes"), py::arg("names"),
           py::arg("counts"), py::arg("threads"))
      .def("exchange", &shard_hook::exchange, py::arg("unit"), py::arg("gradient"),
           py::call_guard<py::gil_scoped_release>())
      .def("end_step", &shard_hook::end_step, py::call_guard<py::gil_scoped_release>());
  define_common<shard_hook>(shard_type);

#if defined(GRADSIEVE_TORCH_CUDA)
  py::class_<device_hook, std::shared_ptr<device_hook>> device_type(module, "DeviceHook");
  device_type
      .def(py::init([](std::shared_ptr<c10d::Reducer> const& reducer, wishes const& asked, c10d::ProcessGroup& group,
                       c10d::ProcessGroup* inside, std::vector<at::Tensor> const& parameters,
                       names const& parameter_names, int) {
             c10::cuda::CUDAGuard const guard{parameters.at(0).device()};
             return std::shared_ptr<device_hook>{
                 new device_hook{reducer, peers_in<gs::device>(group, inside), parameters, parameter_names,
                                 compression_of(asked, true)},
                 hook_deleter{}};
           }),
           py::kw_only(), py::arg("reducer"), py::arg("wishes"), py::arg("group"), py::arg("inside"),
           py::arg("parameters"), py::arg("names"), py::arg("threads"))
      .def(
          "start", [](device_hook& target, c10d::GradBucket& bucket) { target.start(bucket); },
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly(
          "stream", [](device_hook& target) { return reinterpret_cast<std::uintptr_t>(target.stream().stream()); })
      .def("copy_residual", &copy_residual<device_hook>, py::call_guard<py::gil_scoped_release>())
      .def("attach", &attach<native_device_route, device_hook>);
  define_common<device_hook>(device_type);
#endif
}
