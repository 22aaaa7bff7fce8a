// Threads that flush subnormal numbers to zero, round upwards or trap: a step gives the same bits, and leaves their
// mode as it was.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>

#include "float_mode.hpp"
#include "steps.hpp"

#if defined(__x86_64__) || defined(__aarch64__)

using namespace steps;
using namespace float_mode;

namespace {

enum class whose { nobody, one_thread, all_threads, one_of_two_ranks };

/// Every magnitude that the format has, subnormal ones most.
template <class T>
std::vector<T> gradient_with_subnormals(std::uint64_t n, int rank, std::uint64_t step) {
  data::generator random{step * 31 + static_cast<std::uint64_t>(rank) + 1};
  std::vector<T> values(n);
  for (auto& x : values) {
    auto const bits = random.bits();
    double const size = std::ldexp(random.uniform(), -static_cast<int>(bits % (sizeof(T) == 2 ? 24 : 140)));
    x = gs::from_float<T>(static_cast<float>((bits >> 63) != 0 ? size : -size));
  }
  return values;
}

/// What each rank has after some steps: updates, messages, reports and residual.
template <class T, class Recipe>
std::vector<std::string> steps_of(Recipe const& recipe, whose flushed, mode_word as) {
  auto const n = std::uint64_t{sanitized ? 6'000 : 40'000};
  return on_ranks(2, [&](communicator comm) {
    bool const here_too = flushed == whose::one_thread || flushed == whose::all_threads ||
                          (flushed == whose::one_of_two_ranks && comm.rank() == 1);
    gs::host const where{.threads = 3};
    std::vector<std::vector<T>> gradients;
    for (std::uint64_t step = 0; step < 4; ++step)
      gradients.push_back(gradient_with_subnormals<T>(n, comm.rank(), step));
    if (flushed == whose::all_threads) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(3)
      write_mode(as);
#endif
    }
    mode const set{here_too ? as : read_mode()};
    auto const before = read_mode();
    findings found;
    gs::compressor compressor{where, gs::layout{{"w", n - 50}, {"bias", 50}}, recipe};
    gs::averager averager{where, compressor.layers(), recipe};
    std::uint64_t all = 0;
    std::uint64_t lost = 0;
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto update = gradients[step];
      auto const report = compressor.exchange(comm, std::span{update});
      all = hash(update, all + 1);
      lost += report.non_finite;
      auto const message = compressor.encode(compressor.compress(update));
      all = steps::hash(message, all + 1);
      averager.apply(std::span{&message, 1}, std::span{update});
      all = hash(update, all + 1);
    }
    all = steps::hash(compressor.state(), all + 1);
    found.expect(read_mode() == before, "the thread's mode has changed");
    return std::to_string(all) + " " + std::to_string(lost) + found.text();
  });
}

template <class T, class Recipe>
void check(Recipe const& recipe) {
  auto const expected = steps_of<T>(recipe, whose::nobody, flushing);
  for (auto const flushed : {whose::one_thread, whose::all_threads, whose::one_of_two_ranks})
    for (auto const as : {flushing, upwards}) {
      CAPTURE(static_cast<int>(flushed));
      CAPTURE(as);
      CHECK(steps_of<T>(recipe, flushed, as) == expected);
    }
}

}  // namespace

TEST_CASE_TEMPLATE("steps", T, float, gs::float16, gs::bfloat16) {
  gs::recipe const fading{.density = 0.01,
                          .residual = gs::error_feedback{.decay = 0.9f},
                          .codec = gs::packed{.indices = gs::delta{}, .values = gs::fp16{}}};
  gs::recipe const shared_out{
      .density = 0.01, .selector = gs::laplacian{}, .partitioner = gs::deft{}, .residual = gs::momentum_correction{}};
  gs::recipe const in_bins{
      .density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = gs::binned{}};
  gs::recipe const all{.density = 1.0, .codec = gs::packed{.values = gs::bf16{}}};
  check<T>(fading);
  check<T>(shared_out);
  check<T>(in_bins);
  check<T>(all);
}

TEST_CASE("every float16 and bfloat16 is read exactly while subnormals are flushed") {
  auto const all = []<class T>(T, mode_word as) {
    std::vector<std::uint32_t> read;
    mode const set{as};
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits)
      read.push_back(gs::bit_cast<std::uint32_t>(gs::to_float(T{static_cast<std::uint16_t>(bits)})));
    return read;
  };
  CHECK(all(gs::float16{}, flushing) == all(gs::float16{}, read_mode()));
  CHECK(all(gs::bfloat16{}, flushing) == all(gs::bfloat16{}, read_mode()));
}

TEST_CASE("every float rounds to float16 and bfloat16 as always while subnormals are flushed") {
  std::uint32_t wrong = 0;
  for (std::uint64_t bits = 0; bits <= 0xFFFF'FFFFu; bits += 40'503) {
    auto const x = gs::bit_cast<float>(static_cast<std::uint32_t>(bits));
    auto const half = gs::from_float<gs::float16>(x);
    auto const brain = gs::from_float<gs::bfloat16>(x);
    mode const set{flushing};
    wrong += half != gs::from_float<gs::float16>(x) || brain != gs::from_float<gs::bfloat16>(x) ? 1u : 0u;
  }
  CHECK(wrong == 0);
}

#endif
