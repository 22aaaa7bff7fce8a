// One of two device translation units that include everything: a function or kernel without `inline` fails the link.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/cuda.cuh>

#include <span>

#include "in_templates.hpp"

using reducer = gradsieve::compressor<gradsieve::device, gradsieve::recipe<>>;

void step_of_b(reducer& one, std::span<float> gradient);
void step_of_a(reducer& one, std::span<float> gradient);

void step_of_a(reducer& one, std::span<float> gradient) { one.exchange(gradsieve::self{}, gradient); }

// A step of each unit finds its kernels.
int main() {
  gradsieve::cuda_buffer<float> const gradient{gradsieve::device{}, 9};
  gradsieve::throw_on_error(cudaMemset(gradient.data(), 0, gradient.size() * sizeof(float)), "cudaMemset");
  reducer one{gradsieve::device{}, gradsieve::layout{{"weight", 6}, {"bias", 3}}, gradsieve::recipe{}};
  step_of_a(one, gradient.span());
  step_of_b(one, gradient.span());
  return one.report().get().non_finite == 0 ? 0 : 1;
}
