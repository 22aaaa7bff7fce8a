// LibTorch: the gradients of a module's parameters, averaged in place over ranks, which are threads here.
#include <torch/torch.h>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

#include <iostream>

namespace gs = gradsieve;

//! [glue]
/// The layers of a model, with the dimensions that tell biases and norms from matrices.
gs::layout layers_of(torch::nn::Module const& model) {
  std::vector<gs::layer> layers;
  for (auto const& each : model.named_parameters())
    layers.push_back(
        {each.key(), static_cast<std::uint64_t>(each.value().numel()), static_cast<std::uint32_t>(each.value().dim())});
  return gs::layout{layers};
}

/// Its gradients, where they lie. Call it after backward(); a parameter that nothing used gets zeros.
gs::pieces<float> gradients_of(torch::nn::Module& model) {
  std::vector<float*> pointers;
  for (auto& each : model.parameters()) {
    if (!each.grad().defined()) each.mutable_grad() = torch::zeros_like(each);
    each.mutable_grad() = each.grad().contiguous();
    pointers.push_back(each.mutable_grad().data_ptr<float>());
  }
  return gs::pieces{pointers};
}
//! [glue]

/// The loss of the last step, averaged over the ranks' samples.
float train(gs::threads::communicator_ref comm, double density) {
  torch::nn::Sequential model{torch::nn::Linear{16, 32}, torch::nn::Tanh{}, torch::nn::Linear{32, 1}};
  float weight = 0;
  for (auto& each : model->parameters())  // the same on all ranks
    for (auto& value : std::span{each.data_ptr<float>(), static_cast<std::size_t>(each.numel())})
      value = 0.2f * std::sin(++weight);
  auto reducer = gs::compressor{gs::host{.threads = 1}, layers_of(*model), gs::recipe{.density = density}};
  auto inputs = torch::sin(torch::arange(64 * 16).reshape({64, 16}) * (1.7 + comm.rank()));
  auto const targets = torch::tanh(inputs.sum(1, true));
  torch::optim::SGD optimizer{model->parameters(), 0.05};
  float last = 0;
  for (int step = 0; step < 400; ++step) {
    optimizer.zero_grad();
    auto const loss = torch::mse_loss(model->forward(inputs), targets);
    loss.backward();
    reducer.exchange(comm, gradients_of(*model));
    optimizer.step();
    last = loss.item<float>();
  }
  comm.all_reduce(gs::host{}, std::span{&last, 1}, gs::reduction::sum);
  return last / static_cast<float>(comm.size());
}

int main() {
  torch::set_num_threads(1);
  float dense = 0, sparse = 0;
  gs::threads::run(2, [&](auto comm) { (comm.rank() == 0 ? dense : std::ignore, train(comm, 1)); });
}
