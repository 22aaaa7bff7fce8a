#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

void use(std::span<float> gradient) {
  gradsieve::compressor reducer{
      gradsieve::host{}, gradsieve::layout::flat(10),
      gradsieve::recipe{
          .selector = gradsieve::chunked{}, .partitioner = gradsieve::cyclic{}, .codec = gradsieve::binned{}}};
  reducer.exchange(gradsieve::self{}, gradient);
}
