// dlib: the gradients of a network's layers are averaged in place over the ranks, which are threads here.
#include <dlib/dnn.h>
#include <cmath>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>
#include <iostream>
#include <vector>

namespace gs = gradsieve;
using network = dlib::loss_mean_squared<dlib::fc<1, dlib::htan<dlib::fc<16, dlib::input<dlib::matrix<float>>>>>>;

/// After the first forward pass, which makes the parameters.
gs::layout layers_of(network& net) {
  std::vector<gs::layer> layers;
  dlib::visit_layer_parameters(
      net, [&](std::size_t i, dlib::tensor& each) { layers.push_back({"layer" + std::to_string(i), each.size(), 2}); });
  return gs::layout{layers};
}

gs::pieces<float> gradients_of(network& net) {
  std::vector<float*> pointers;
  dlib::visit_layer_parameter_gradients(
      net, [&](std::size_t, dlib::tensor& each) { pointers.push_back(each.size() > 0 ? each.host() : nullptr); });
  return gs::pieces{pointers};
}

float train(gs::threads::communicator_ref comm, double density) {
  std::vector<dlib::matrix<float>> inputs;
  std::vector<float> targets;
  for (int i = 0; i < 64; ++i) {
    auto const x = [&](int j) { return std::sin(1.7f * static_cast<float>(i * 8 + j + comm.rank())); };
    inputs.push_back(dlib::matrix<float>(8, 1));
    for (int j = 0; j < 8; ++j) inputs.back()(j) = x(j);
    targets.push_back(std::tanh(x(0) + x(1)));
  }
  network net;
  dlib::resizable_tensor samples;
  net.to_tensor(inputs.begin(), inputs.end(), samples);
  net.forward(samples);
  dlib::visit_layer_parameters(net, [](std::size_t, dlib::tensor& each) {  // the same on all ranks
    for (std::size_t i = 0; i < each.size(); ++i) each.host()[i] = 0.3f * std::sin(static_cast<float>(i));
  });
  auto reducer = gs::compressor{gs::host{.threads = 1}, layers_of(net), gs::recipe{.density = density}};
  std::vector<dlib::sgd> solvers(network::num_computational_layers, dlib::sgd(0, 0));
  double loss = 0;
  for (int step = 0; step < 400; ++step) {
    loss = net.compute_parameter_gradients(samples, targets.begin());
    reducer.exchange(comm, gradients_of(net));
    net.update_parameters(dlib::make_sstack(solvers), 0.1);
  }
  return static_cast<float>(loss);
}

int main() {
  float loss[2][2];
  for (int sparse : {0, 1})
    gs::threads::run(2, [&](auto comm) { loss[sparse][comm.rank()] = train(comm, sparse == 1 ? 0.1 : 1.0); });
  std::cout << "loss: dense " << loss[0][0] << ", 10 % of the elements " << loss[1][0] << '\n';
  return loss[1][0] < 1.5f * loss[0][0] ? 0 : 1;
}
