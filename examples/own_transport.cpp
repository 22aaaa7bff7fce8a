// No communicator at all: messages are bytes, and the caller carries them (files, sockets, ...).
#include <gradsieve/averager.hpp>
#include <gradsieve/compressor.hpp>

#include <cstddef>
#include <iostream>
#include <random>
#include <span>
#include <vector>

namespace gs = gradsieve;

int main() {
  auto const layers = gs::layout{{"weight", 100'000}, {"bias", 100}};
  auto const recipe = gs::recipe{.density = 0.01};

  // Three workers compress their gradients; what they did not send waits in their residuals.
  std::vector<std::vector<std::byte>> posted;
  for (unsigned worker = 0; worker < 3; ++worker) {
    auto compressor = gs::compressor{gs::host{}, layers, recipe};
    std::mt19937 random(worker);
    std::normal_distribution<float> normal;
    std::vector<float> gradient(layers.size());
    for (auto& g : gradient) g = normal(random);
    auto const message = compressor.encode(compressor.compress(gradient));
    posted.emplace_back(message.begin(), message.end());
    std::cout << "worker " << worker << ": " << message.size() << " of " << gradient.size() * sizeof(float)
              << " bytes\n";
  }

  // A server averages them, without a residual. The bytes are checked before anything is written.
  auto server = gs::averager{gs::host{}, layers, recipe};
  std::vector<std::span<std::byte const>> received(posted.begin(), posted.end());
  std::vector<float> update(layers.size());
  server.apply(received, update);

  posted[1][1'000] ^= std::byte{1};  // a flipped bit on the way
  try {
    server.apply(received, update);
  } catch (gs::corrupt_message const& refused) {
    std::cout << "refused: " << refused.what() << '\n';
    return 0;
  }
  return 1;
}
