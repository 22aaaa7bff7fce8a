// ensmallen and Armadillo: an optimizer of ensmallen's on every rank, which averages gradients with the others.
#include <ensmallen.hpp>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

#include <iostream>
#include <span>

namespace gs = gradsieve;

/// Least squares: this rank's samples, a column each.
struct samples {
  arma::mat inputs, targets;
  std::size_t NumFunctions() const { return inputs.n_cols; }
  void Shuffle() {}
  double EvaluateWithGradient(arma::fmat const& weights, std::size_t first, arma::fmat& gradient, std::size_t count) {
    arma::fmat const x = arma::conv_to<arma::fmat>::from(inputs.cols(first, first + count - 1));
    arma::fmat const error = weights * x - arma::conv_to<arma::fmat>::from(targets.cols(first, first + count - 1));
    gradient = 2 * error * x.t() / static_cast<float>(count);
    return arma::accu(arma::square(error)) / static_cast<float>(count);
  }
};

//! [glue]
/// A function of ensmallen's whose gradient is the ranks' mean. All ranks have as many samples.
template <class Function, class Comm, class Reducer>
struct averaged {
  Function& mine;
  Comm const& comm;
  Reducer& reducer;
  std::size_t NumFunctions() const { return mine.NumFunctions(); }
  void Shuffle() { mine.Shuffle(); }
  double EvaluateWithGradient(arma::fmat const& at, std::size_t first, arma::fmat& gradient, std::size_t count) {
    auto const loss = mine.EvaluateWithGradient(at, first, gradient, count);
    reducer.exchange(comm, std::span{gradient.memptr(), gradient.n_elem});  // several matrices: gs::pieces{pointers}
    return loss;
  }
};
//! [glue]

double train(gs::threads::communicator_ref comm, double density) {
  arma::arma_rng::set_seed(7 + comm.rank());
  arma::mat const truth = arma::sin(arma::regspace(1, 40).t());
  samples mine{arma::randn(40, 64), {}};
  mine.targets = truth * mine.inputs;
  auto reducer = gs::compressor{gs::host{.threads = 1}, gs::layout::flat(40), gs::recipe{.density = density}};
  averaged<samples, gs::threads::communicator_ref, decltype(reducer)> all{mine, comm, reducer};
  arma::fmat weights(1, 40, arma::fill::zeros), unused;
  ens::StandardSGD{0.02, 16, 64 * 60, -1.0, false}.Optimize(all, weights);
  return mine.EvaluateWithGradient(weights, 0, unused, 64);
}

int main() {
  double loss[2];
  for (int sparse : {0, 1})
    gs::threads::run(2, [&](gs::threads::communicator_ref comm) {
      auto const mine = train(comm, sparse == 1 ? 0.1 : 1.0);
      if (comm.rank() == 0) loss[sparse] = mine;
    });
  std::cout << "loss, 17 at first: dense " << loss[0] << ", 10 % of the elements " << loss[1] << '\n';
  return loss[1] < loss[0] + 0.2 ? 0 : 1;
}
