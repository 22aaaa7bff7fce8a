// Tests of train's instruments and optimisers on numbers that are known.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/residual/filtered.hpp>

#include "optimiser.hpp"
#include "recorder.hpp"
#include "trace.hpp"

namespace {

int failed = 0;

void near(char const* what, double value, double expected, double within) {
  if (std::abs(value - expected) <= within) return;
  std::cout << what << " is " << value << ", expected " << expected << " within " << within << '\n';
  ++failed;
}

void shapes() {
  auto random = std::mt19937_64{1};
  auto uniform = std::uniform_real_distribution<double>{-0.5, 0.5};
  auto normal = std::normal_distribution<double>{0, 1};
  std::vector<float> laplace(200'000), gauss(200'000);
  for (auto& x : laplace) {
    double const u = uniform(random);
    x = static_cast<float>(3 * (u < 0 ? std::log(1 + 2 * u) : -std::log(1 - 2 * u)));
  }
  for (auto& x : gauss) x = static_cast<float>(normal(random));

  auto const of_laplace = example::shape_of(laplace);
  near("mean magnitude of Laplace", of_laplace.mean_magnitude, 3, 0.05);
  near("kurtosis of Laplace", of_laplace.kurtosis, 6, 0.4);
  // Between the laws: the integral of the difference of their distribution functions.
  near("distance of Laplace to its law", of_laplace.to_laplace, 0, 0.01);
  near("distance of Laplace to Gauss", of_laplace.to_gauss, 0.2056, 0.01);
  near("share above 4", of_laplace.above[2], std::exp(-4), 0.002);
  auto const of_gauss = example::shape_of(gauss);
  near("kurtosis of Gauss", of_gauss.kurtosis, 3, 0.1);
  near("distance of Gauss to its law", of_gauss.to_gauss, 0, 0.01);
  near("distance of Gauss to Laplace", of_gauss.to_laplace, 0.1640, 0.01);
  double all = 0;
  for (double const share : of_gauss.histogram) all += share;
  near("sum of the histogram", all, 1, 1e-9);

  near("count of nothing", static_cast<double>(example::shape_of({}).count), 0, 0);
  std::vector<float> const zeros(10);
  near("share of zeros", example::shape_of(zeros).zeros, 1, 1e-12);
  near("distance of zeros", example::shape_of(zeros).to_laplace, 0, 0);
  std::vector<float> const odd{1, std::numeric_limits<float>::quiet_NaN(), -1, std::numeric_limits<float>::infinity()};
  near("finite numbers", static_cast<double>(example::shape_of(odd).count), 2, 0);
  std::vector<float> const known{1, 2, 4, 1};  // mean magnitude 2: units 0.5, 1, 2, 0.5
  auto const four = example::shape_of(known);
  near("bin of a half", four.histogram[7], 0.5, 1e-12);
  near("bin of 1", four.histogram[8], 0.25, 1e-12);
  near("share above 1", four.above[0], 0.25, 1e-12);
}

void ranks() {
  gradsieve::threads::run(3, [](auto comm) {
    std::vector<float> mine{1, 0, 0, 0};
    auto const equal = example::likeness_of(comm, mine, 1);
    std::vector<float> own(4);
    own[static_cast<std::size_t>(comm.rank())] = -2;
    auto const apart = example::likeness_of(comm, own, 1);
    std::vector<float> half{1, 0, 0, 0};
    half[static_cast<std::size_t>(comm.rank()) + 1] = 1;  // one entry in common, one not: cosine 1/2, overlap 1/2
    auto const both = example::likeness_of(comm, half, 2);
    std::vector<float> const nothing(4);
    auto const zero = example::likeness_of(comm, nothing, 0);
    if (comm.rank() != 0) return;
    near("cosine of equal vectors", equal.cosine, 1, 1e-6);
    near("overlap of equal vectors", equal.overlap, 1, 1e-6);
    near("cosine of orthogonal vectors", apart.cosine, 0, 1e-6);
    near("overlap of orthogonal vectors", apart.overlap, 0, 1e-6);
    near("cosine of half", both.cosine, 0.5, 1e-6);
    near("overlap of half", both.overlap, 0.5, 1e-6);
    near("cosine of zeros", zero.cosine, 0, 0);
  });
}

void optimisers() {
  auto const layers = gradsieve::layout{std::vector<gradsieve::layer>{{"a", 1}, {"b", 2}}};
  auto const moved = [&](char const* name, int steps, std::vector<float> const& gradient) {
    auto update = example::optimiser{name, 0.1, 0.5, layers};
    std::vector<float> parameters(3);
    for (int i = 0; i < steps; ++i) update.step(parameters, gradient);
    return parameters;
  };
  near("sgd, 2 steps", moved("sgd", 2, {1, 0, 0})[0], -0.1 - 0.15, 1e-6);
  auto const adam = moved("adam", 3, {5, -0.01f, 0});  // steps of one size, whatever the gradient's
  near("adam", adam[0], -0.3, 1e-5);
  near("adam, the other sign", adam[1], 0.3, 1e-5);
  near("adam without a gradient", adam[2], 0, 0);
  auto decayed = example::optimiser{"adamw", 0.1, 0.5, {{"a", 1, 2}, {"b", 2, 1}}, 0.5};
  std::vector<float> ones(3, 1.0f);
  decayed.step(ones, std::vector<float>{0, 0, 2}, std::vector<float>{1, 0.25f});
  near("adamw decays a matrix", ones[0], 0.95, 1e-6);
  near("adamw, no bias", ones[1], 1, 1e-6);
  near("adamw, a quarter of the second moment", ones[2], 1 - 0.2, 1e-5);
  auto const novograd = moved("novograd", 1, {7, 3, 4});  // each layer has a step of length 1 times the rate
  near("novograd, first layer", novograd[0], -0.1, 1e-6);
  near("novograd, 3 of 5", novograd[1], -0.06, 1e-6);
  near("novograd, 4 of 5", novograd[2], -0.08, 1e-6);
  near("novograd, 2 steps", moved("novograd", 2, {7, 3, 4})[0], -0.1 - 0.15, 1e-5);
  auto const kept = [&](char const* name) {
    auto update = example::optimiser{name, 0.1, 0.5, layers};
    std::vector<float> parameters(3), gradient(3, 1.0f);
    update.step(parameters, gradient);
    return static_cast<double>(update.state_bytes());
  };
  near("state of sgd", kept("sgd"), 12, 0);  // three binary32, a first moment each
  near("state of adam", kept("adam"), 24, 0);
  near("state of novograd", kept("novograd"), 12 + 16, 0);  // and a binary64 for each layer
}

/// With one entry a step, what is sent is the largest of the accumulator, which the tracer has to know by itself.
void filtered_accumulators() {
  gradsieve::threads::run(1, [](auto comm) {
    auto const layers = gradsieve::layout::flat(8);
    gradsieve::recipe const recipe{.density = 0.125, .residual = gradsieve::filtered{.beta = 0.25f}};
    auto reducer = gradsieve::compressor{gradsieve::host{.threads = 1}, layers, recipe};
    auto rows =
        example::tracer{example::communicator{comm},        "filtered", layers, 0.125, {.accumulators_every = 1},
                        [&] { return reducer.residual(); }, 0.25};
    std::vector<float> largest;
    std::mt19937 random{3};
    for (int step = 0; step < 20; ++step) {
      std::vector<float> gradient(8);
      for (float& x : gradient) x = std::uniform_real_distribution<float>{1, 2}(random);
      rows.before(gradient);
      auto const report = reducer.exchange(comm, gradient);
      rows.after(gradient, report, 0);
      largest.push_back(*std::max_element(gradient.begin(), gradient.end()));
    }
    auto text = std::istringstream{std::move(rows).take().accumulators};
    for (float const sent : largest)
      for (int layer = 0; layer < 2; ++layer) {  // all, and the one there is
        std::string line;
        for (int column = 0; column < 12; ++column) std::getline(text, line, ',');
        near("largest of a filtered accumulator", std::stod(line), static_cast<double>(sent), 1e-4);
        std::getline(text, line);
      }
  });
}

}  // namespace

int main() {
  filtered_accumulators();
  shapes();
  ranks();
  optimisers();
  return failed == 0 ? 0 : 1;
}
