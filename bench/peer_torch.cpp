// The same job in libtorch's calls. Compiled with GRADSIEVE_BENCH_TORCH only; without it, a word.
#include "peer_rows.hpp"

#if defined(GRADSIEVE_BENCH_TORCH)
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace bench {
namespace {

class torch_step {
 public:
  explicit torch_step(setting const& at)
      : k_{at.k()}, residual_{at::zeros({static_cast<std::int64_t>(at.n)}, at::kFloat)} {
    at::set_num_threads(at.threads);
  }

  void operator()(std::span<float const> gradient) {
    at::NoGradGuard const no_grad;
    auto* const data = const_cast<float*>(gradient.data());  // a tensor of const elements does not exist
    residual_.add_(at::from_blob(data, {static_cast<std::int64_t>(gradient.size())}, at::kFloat));
    indices_ = std::get<1>(at::topk(residual_.abs(), k_, -1, true, false));
    values_ = residual_.index_select(0, indices_);
    residual_.index_fill_(0, indices_, 0);
  }

  [[nodiscard]] std::span<float const> residual() const { return all_of(residual_); }
  [[nodiscard]] std::span<float const> values() const { return all_of(values_); }

 private:
  static std::span<float const> all_of(at::Tensor const& tensor) {
    return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
  }

  std::int64_t k_;
  at::Tensor residual_, indices_, values_;
};

}  // namespace

void add_torch(options const& chosen) {
  for (auto const& at : settings_of(chosen, {0.001, 0.01})) add_peer_step<torch_step>("libtorch", at);
}

}  // namespace bench
#else
#include <iostream>

namespace bench {

void add_torch(options const&) {
  std::cerr << "gradsieve_bench: no peer/libtorch: built without GRADSIEVE_BENCH_TORCH, or none was found\n";
}

}  // namespace bench
#endif
