// LibTorch: the gradients of a module's parameters are averaged in place over the ranks, which are threads here.
#include <torch/torch.h>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>
#include <iostream>
#include <vector>

namespace gs = gradsieve;

gs::layout layers_of(torch::nn::Module const& model) {
  std::vector<gs::layer> layers;
  for (auto const& each : model.named_parameters())
    layers.push_back({each.key(), each.value().numel(), each.value().dim()});
  return gs::layout{layers};
}

/// After backward(); zeros for a parameter that nothing has used.
gs::pieces<float> gradients_of(torch::nn::Module const& model) {
  std::vector<float*> pointers;
  for (auto& each : model.parameters()) {
    each.mutable_grad() = each.grad().defined() ? each.grad().contiguous() : torch::zeros_like(each);
    pointers.push_back(each.mutable_grad().data_ptr<float>());
  }
  return gs::pieces{pointers};
}

/// The mean loss of both ranks, each of which has samples of its own.
float train(gs::threads::communicator_ref comm, double density) {
  torch::nn::Sequential model{torch::nn::Linear{16, 32}, torch::nn::Tanh{}, torch::nn::Linear{32, 1}};
  for (auto& each : model->parameters())  // the same on all ranks
    each.data().copy_(torch::sin(torch::arange(each.numel())).reshape(each.sizes()) / 4);
  auto reducer = gs::compressor{gs::host{.threads = 1}, layers_of(*model), gs::recipe{.density = density}};
  auto const inputs = torch::sin(torch::arange(64.0f * 16).reshape({64, 16}) * (1.7 + comm.rank()));
  auto const targets = torch::tanh(inputs.sum(1, true));
  auto optimizer = torch::optim::SGD{model->parameters(), 0.05};
  float loss = 0;
  for (int step = 0; step < 300; ++step) {
    optimizer.zero_grad();
    auto const error = torch::mse_loss(model->forward(inputs), targets);
    error.backward();
    reducer.exchange(comm, gradients_of(*model));
    optimizer.step();
    loss = error.item<float>() / static_cast<float>(comm.size());
  }
  comm.all_reduce(gs::host{}, std::span{&loss, 1}, gs::reduction::sum);
  return loss;
}

int main() {
  torch::set_num_threads(1);
  float loss[2];
  for (int sparse : {0, 1})
    gs::threads::run(2, [&](gs::threads::communicator_ref comm) {
      auto const mine = train(comm, sparse == 1 ? 0.1 : 1.0);
      if (comm.rank() == 0) loss[sparse] = mine;
    });
  std::cout << "loss: dense " << loss[0] << ", 10 % of the elements " << loss[1] << '\n';
  return loss[1] < 1.2f * loss[0] ? 0 : 1;
}
