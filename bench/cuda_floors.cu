// What the memory gives: a copy, and the least that a step must do.
#include "cuda_bench.cuh"

namespace bench {
namespace {

template <class T>
void add_floor(std::uint64_t n) {
  std::string const axes = "n:" + std::to_string(n) + "/dtype:" + dtype_name<T>;
  setting const at{.n = n, .dtype = dtype_name<T>};
  add("floor/accumulate/" + axes, [=](benchmark::State& state) {
    gs::cuda_buffer<float> residual{gs::device{stream()}, n};
    row<T> row{state, at};
    row.measure((8 + sizeof(T)) * n, [&](std::span<T const> gradient) { accumulate(residual.data(), gradient); });
    state.SetLabel(accumulate_launch<T>(n));
  });
  add("floor/copy/" + axes, [=](benchmark::State& state) {
    gs::cuda_buffer<T> to{gs::device{stream()}, n};
    row<T> row{state, at};
    row.measure(2 * sizeof(T) * n, [&](std::span<T const> gradient) {
      gs::device{stream()}.copy(std::as_bytes(gradient), std::as_writable_bytes(to.span()));
    });
  });
}

part const floors{[] {
  for (auto const n : sizes({1 << 16, 1 << 18, 1 << 20, 1 << 22, bucket, 1 << 24, 1 << 26, 1 << 28, 1 << 30},
                            {1 << 16, 1 << 20, bucket, 1 << 26})) {
    add_floor<float>(n);
    add_floor<gs::float16>(n);
    add_floor<gs::bfloat16>(n);
  }
}};

}  // namespace
}  // namespace bench
