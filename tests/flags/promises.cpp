// What a build must keep whatever its flags: NaN and infinity are noticed, means are divided, and what ranks decide in
// common is the same. Prints a hash of the results for each, and ends with 1 if a promise is broken.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/host/dense_mean.hpp>

namespace gs = gradsieve;

namespace {

int broken = 0;

#define EXPECT(it)                                              \
  do {                                                          \
    if (!(it)) {                                                \
      std::fprintf(stderr, "line %d: not %s\n", __LINE__, #it); \
      ++broken;                                                 \
    }                                                           \
  } while (false)

template <class Body>
bool refused(Body const& body) {
  try {
    body();
  } catch (std::exception const&) {
    return true;
  }
  return false;
}

/// Values of these bits, which no compiler can see.
std::vector<float> hidden(std::vector<std::uint32_t> const& bits) {
  std::vector<float> values(bits.size());
  static void* (*volatile const copy)(void*, void const*, std::size_t) = std::memcpy;
  copy(values.data(), bits.data(), 4 * bits.size());
  return values;
}

std::uint64_t not_finite(std::span<float const> values) {
  std::uint64_t count = 0;
  for (float const& x : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &x, 4);
    count += (bits & 0x7FFF'FFFFu) >= 0x7F80'0000u ? 1u : 0u;
  }
  return count;
}

// ---- dense_mean --------------------------------------------------------------------------------------------

/// Hashes the means of three ranks; all ranks notice one that fails, and are in step afterwards.
template <class T>
void add_dense_means(gs::fingerprint& all) {
  gs::threads::run(3, [&](gs::threads::communicator_ref comm) {
    for (int step = 0; step < 3; ++step) {
      std::vector<T> gradient(1000);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<T>(static_cast<double>(gs::mix(i + static_cast<std::uint64_t>(comm.rank())) >> 40));
      bool const fails = step == 1 && comm.rank() == 1;
      bool const threw = refused([&] {
        if (fails)
          gs::dense_mean{}.fail(comm, std::span{gradient});
        else
          gs::dense_mean{}.exchange(comm, std::span{gradient});
      });
      if (threw != (step == 1 && !fails)) std::abort();  // the others may be in another collective now
      if (step != 1 && comm.rank() == 0) all.add_bytes(std::as_bytes(std::span{gradient}));
    }
  });
}

// ---- A residual stays finite --------------------------------------------------------------------------------

template <class Residual>
void check_overflow(Residual const& residual) {
  for (std::size_t const n : {1u, 63u, 64u, 100u, 500u}) {
    gs::recipe const recipe{.density = 0.01, .residual = residual};
    gs::compressor compressor{gs::host{.threads = 1}, gs::layout::flat(n), recipe};
    std::vector<float> const gradient(n, 3e38f);
    for (int step = 0; step < 4; ++step) static_cast<void>(compressor.compress(gradient));
    EXPECT(not_finite(compressor.residual()) == 0);
    auto const state = compressor.state();
    EXPECT(!refused([&] { compressor.restore(state); }));
  }
}

// ---- Input ---------------------------------------------------------------------------------------------------

void check_input() {
  auto const values = hidden({0x7FC0'0000u, 0x7F80'0000u, 0xFF80'0000u, 0x7F7F'FFFFu});
  for (std::size_t i = 0; i < 3; ++i) {
    float const& bad = values[i];
    EXPECT(!gs::is_finite(bad));
    EXPECT(!gs::is_finite(static_cast<double>(bad)));
    gs::recipe const recipe{.density = 0.5, .on_non_finite = gs::non_finite::fail};
    gs::compressor compressor{gs::host{.threads = 1}, gs::layout::flat(4), recipe};
    std::vector<float> const gradient{1, bad, 2, 3};
    EXPECT(refused([&] { static_cast<void>(compressor.compress(gradient)); }));
    EXPECT(refused([&] { compressor.rescale(bad); }));
    std::array<gs::index_type, 2> const at{1, 2};
    std::array<float, 2> const entries{bad, 1};
    EXPECT(refused([&] { static_cast<void>(compressor.encode(gs::selection_view{at, entries, {}})); }));
    EXPECT(i == 1 || refused([&] { gs::check(gs::momentum_correction{.clip = bad}); }));
    EXPECT(refused([&] { gs::density_schedule{static_cast<double>(bad)}.check(); }));
    EXPECT(!gs::is_finite(gs::to_float(gs::from_float<gs::float16>(bad))));
    EXPECT(!gs::is_finite(gs::to_float(gs::from_float<gs::bfloat16>(bad))));
  }
  EXPECT(gs::is_finite(values[3]));
  EXPECT(!gs::is_finite(gs::add(values[3], values[3])));
  EXPECT(!gs::is_finite(gs::multiply(values[3], 2)));
  EXPECT(!gs::is_finite(gs::divide(values[3], 0.5f)));
}

// ---- What ranks decide in common ------------------------------------------------------------------------------

/// Numbers of elements of the layers of a trace, which has "name,bytes,..." in each line but the first.
std::vector<gs::range> layers_of(std::string const& path) {
  std::vector<gs::range> layers;
  std::ifstream file{path};
  std::string line;
  std::getline(file, line);
  std::uint64_t at = 0;
  while (std::getline(file, line)) {
    std::uint64_t const size = std::strtoull(line.c_str() + line.find(',') + 1, nullptr, 10) / 4;
    layers.push_back({at, size});
    at += size;
  }
  return layers;
}

template <class Partitioner>
void add_decisions(gs::fingerprint& all, Partitioner const& how, std::vector<gs::range> const& layers) {
  std::uint64_t const n = layers.back().offset + layers.back().size;
  gs::density_schedule const ramp{gs::warm_up{.initial = 0.25, .final = 0.001, .steps = 7}};
  for (int const world : {2, 3, 5, 8, 16}) {
    gs::detail::segmentation<Partitioner> segments;
    segments.plan(how, layers, n, ramp.most(), world);
    for (std::uint64_t step = 0; step < 9; ++step) {
      auto const norms = segments.norms();
      for (std::size_t s = 0; s < norms.size(); ++s)
        norms[s] = gs::mix(s ^ gs::mix(step)) % 17 == 0
                       ? 0
                       : gs::exact::multiply(static_cast<double>(gs::mix(s ^ gs::mix(step)) >> 20), 0x1.23456789abcp-40);
      segments.assign(how, ramp(step), step, world);
      all.add(segments.decision(step));
    }
  }
}

void add_all_decisions(gs::fingerprint& all) {
  std::set<std::string> traces;
  for (auto const& each : std::filesystem::directory_iterator{GRADSIEVE_TRACES})
    if (each.path().extension() == ".csv") traces.insert(each.path().string());
  EXPECT(traces.size() > 5);
  std::vector<std::vector<gs::range>> models;
  for (auto const& each : traces) models.push_back(layers_of(each));
  for (std::uint64_t model = 0; model < 40; ++model) {  // very large layers
    std::vector<gs::range> layers;
    std::uint64_t at = 0;
    for (std::uint64_t l = 0; l < 30; ++l) {
      std::uint64_t const size = gs::mix(l ^ gs::mix(model)) % 100'000'000;
      layers.push_back({at, size});
      at += size;
    }
    models.push_back(std::move(layers));
  }
  constexpr gs::selection_cost measured[]{{}, {1234.5, 0.61803, 3.14159}, {87.1, 0.3183, 0}, {0, 0.1, 7.3}, {0, 0, 1.1}};
  for (auto const& layers : models) {
    EXPECT(!layers.empty());
    for (auto const& cost : measured)
      for (auto const sharing : {gs::deft_sharing::by_layer, gs::deft_sharing::by_fragment})
        add_decisions(all, gs::deft{.cost = cost, .sharing = sharing, .rotate_every = 2}, layers);
    add_decisions(all, gs::whole{}, layers);
    add_decisions(all, gs::layerwise{}, layers);
    add_decisions(all, gs::micro{}, layers);
  }
}

}  // namespace

int main() {
  gs::fingerprint means;
  add_dense_means<float>(means);
  add_dense_means<double>(means);
  check_overflow(gs::error_feedback{});
  check_overflow(gs::error_feedback{.decay = 0.9f});
  check_overflow(gs::momentum_correction{});
  check_overflow(gs::filtered{.beta = 0.5f});
  check_input();
  gs::fingerprint decisions;
  add_all_decisions(decisions);
  std::printf("%016llx %016llx\n", static_cast<unsigned long long>(means.value()),
              static_cast<unsigned long long>(decisions.value()));
  return broken == 0 ? 0 : 1;
}
