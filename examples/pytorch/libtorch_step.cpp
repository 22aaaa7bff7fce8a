// LibTorch without Python: a module whose gradients are one flat tensor, exchanged by gradsieve over MPI.
// Run: mpirun -n 2 libtorch_step [steps]
#include <torch/torch.h>

#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/partitioner/deft.hpp>
#include <gradsieve/selector/laplacian.hpp>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if !defined(GRADSIEVE_EXAMPLE_DATA)
#define GRADSIEVE_EXAMPLE_DATA "examples/data"
#endif

namespace gs = gradsieve;

namespace {

constexpr std::int64_t pixels = 64;
constexpr std::int64_t batch = 128;  // samples a step, all ranks together

struct samples {
  torch::Tensor images;  // (n, 64)
  torch::Tensor labels;  // (n)
};

/// Rows of 64 pixels 0..16 and a digit, by comma. @throws std::runtime_error
samples read_digits(std::string const& path) {
  auto file = std::ifstream{path};
  if (!file) throw std::runtime_error("cannot read '" + path + "'");
  std::vector<float> images;
  std::vector<std::int64_t> labels;
  for (std::string line; std::getline(file, line);) {
    auto const* at = line.data();
    auto const* const end = at + line.size();
    for (std::int64_t column = 0; column <= pixels; ++column) {
      int value = 0;
      auto const [next, failed] = std::from_chars(at, end, value);
      if (failed != std::errc{} || value < 0 || value > (column < pixels ? 16 : 9))
        throw std::runtime_error("'" + path + "' line " + std::to_string(labels.size() + 1) +
                                 ": expected 64 pixels 0..16 and a digit");
      if (column < pixels)
        images.push_back(static_cast<float>(value) / 16.0f);
      else
        labels.push_back(value);
      at = next == end ? end : next + 1;
    }
  }
  auto const count = static_cast<std::int64_t>(labels.size());
  return {torch::tensor(images).view({count, pixels}), torch::tensor(labels)};
}

struct mlp : torch::nn::Module {
  torch::nn::Linear fc1{nullptr}, fc2{nullptr}, fc3{nullptr};

  mlp() {
    fc1 = register_module("fc1", torch::nn::Linear(pixels, 256));
    fc2 = register_module("fc2", torch::nn::Linear(256, 128));
    fc3 = register_module("fc3", torch::nn::Linear(128, 10));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(fc1->forward(x));
    return fc3->forward(torch::relu(fc2->forward(x)));
  }
};

/// All gradients of a module as one tensor, in the order of named_parameters(): every parameter's grad() is a view of
/// it, into which the backward pass adds. So the optimizer must zero them and not let them go.
class flat_gradient {
 public:
  explicit flat_gradient(torch::nn::Module& module) {
    std::vector<gs::layer> layers;
    for (auto const& each : module.named_parameters())
      layers.push_back({each.key(), static_cast<std::uint64_t>(each.value().numel())});
    layers_ = gs::layout{std::move(layers)};
    all_ = torch::zeros({static_cast<std::int64_t>(layers_.size())});
    std::int64_t offset = 0;
    for (auto& parameter : module.parameters()) {
      parameter.mutable_grad() = all_.narrow(0, offset, parameter.numel()).view_as(parameter);
      offset += parameter.numel();
    }
  }

  [[nodiscard]] gs::layout const& layers() const { return layers_; }
  void zero() { all_.zero_(); }
  [[nodiscard]] std::span<float> values() { return {all_.data_ptr<float>(), static_cast<std::size_t>(all_.numel())}; }

  /// Whether the backward pass has left every gradient where it was put.
  [[nodiscard]] bool holds(torch::nn::Module const& module) const {
    for (auto const& parameter : module.parameters())
      if (!parameter.grad().defined() || !parameter.grad().is_alias_of(all_)) return false;
    return true;
  }

 private:
  gs::layout layers_;
  torch::Tensor all_;
};

/// FNV-1a over the bits of all parameters.
std::uint64_t digest(torch::nn::Module const& module) {
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325u;
  for (auto const& parameter : module.parameters()) {
    auto const values = parameter.detach().contiguous();
    for (auto const byte : std::span{static_cast<unsigned char const*>(values.data_ptr()), values.nbytes()})
      hash = (hash ^ byte) * 0x0000'0100'0000'01B3u;
  }
  return hash;
}

void train(gs::mpi::communicator_ref const& comm, int steps) {
  torch::set_num_threads(1);
  torch::manual_seed(1);  // the same weights and the same batches on every rank
  auto const data = read_digits(GRADSIEVE_EXAMPLE_DATA "/digits.csv");
  auto const held_out = torch::arange(data.labels.size(0)).remainder(5).eq(4);
  auto const pick = [&](torch::Tensor const& which) {
    return samples{data.images.index({which}), data.labels.index({which})};
  };
  auto const training = pick(held_out.logical_not());
  auto const test = pick(held_out);

  auto module = mlp{};
  auto gradient = flat_gradient{module};
  auto optimizer = torch::optim::SGD{module.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9)};
  auto const recipe = gs::recipe{.density = 0.01, .selector = gs::laplacian{}, .partitioner = gs::deft{}};
  auto reducer = gs::compressor{gs::host{.threads = 1}, gradient.layers(), recipe};  // residual and scratch: here, once
  if (comm.rank() == 0) std::cout << gradient.layers().size() << " parameters; " << recipe << '\n';

  std::int64_t const share = batch / comm.size();
  double bytes = 0;
  for (int step = 1; step <= steps; ++step) {
    auto const mine =
        torch::randint(training.labels.size(0), {batch}, torch::kLong).narrow(0, share * comm.rank(), share);
    gradient.zero();
    auto const loss = torch::nn::functional::cross_entropy(module.forward(training.images.index({mine})),
                                                           training.labels.index({mine}));
    loss.backward();
    if (!gradient.holds(module)) throw std::runtime_error("a gradient has left the flat tensor");
    auto const report = reducer.exchange(comm, gradient.values());  // now the averaged sparse update
    optimizer.step();
    bytes += static_cast<double>(report.bytes_sent);
    if (comm.rank() == 0 && (step * 10 / steps != (step - 1) * 10 / steps))
      std::cout << "step " << step << ", loss " << loss.item<float>() << ", sent " << report.bytes_sent << " of "
                << report.baseline_bytes << " B\n";
  }

  std::vector<std::uint64_t> digests(static_cast<std::size_t>(comm.size()));
  auto const own = digest(module);
  comm.all_gather(gs::host{}, std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span{digests}));
  for (auto const each : digests)
    if (each != digests.front()) throw std::runtime_error("the ranks' parameters differ after the last step");

  auto const no_grad = torch::NoGradGuard{};
  auto const hits = module.forward(test.images).argmax(1).eq(test.labels).sum().item<std::int64_t>();
  if (comm.rank() == 0)
    std::cout << "test accuracy " << 100.0 * static_cast<double>(hits) / static_cast<double>(test.labels.size(0))
              << " %, " << bytes / steps << " B sent by a rank and step, the same bits on all ranks\n";
}

}  // namespace

int main(int argc, char** argv) {
  auto const session = gs::mpi::session{argc, argv};
  auto const comm = gs::mpi::communicator_ref{MPI_COMM_WORLD};
  int steps = 200;
  auto const text = std::string_view{argc > 1 ? argv[1] : "200"};
  auto const [end, failed] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (argc > 2 || failed != std::errc{} || end != text.data() + text.size() || steps < 1 || steps > 1'000'000 ||
      comm.size() > batch) {
    if (comm.rank() == 0)
      std::cerr << "usage: mpirun -n P libtorch_step [steps], up to 1000000 of them, on up to " << batch << " ranks\n";
    return 2;
  }
  try {
    train(comm, steps);
    return EXIT_SUCCESS;
  } catch (std::exception const& error) {
    std::cerr << "libtorch_step: rank " << comm.rank() << ": " << error.what() << '\n';
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    return EXIT_FAILURE;
  }
}
