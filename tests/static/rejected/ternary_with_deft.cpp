#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

void use(std::span<float> gradient) {
  gradsieve::compressor reducer{
      gradsieve::host{}, gradsieve::layout::flat(10),
      gradsieve::recipe{.partitioner = gradsieve::deft{}, .codec = gradsieve::packed{.values = gradsieve::ternary{}}}};
  reducer.compress(gradient);  // fits: a message has all its values
  reducer.exchange(gradsieve::self{}, gradient);
}
