#include <gradsieve/gradsieve.hpp>

struct no_bytes {
  static constexpr std::uint16_t id = 32'768;
  std::uint64_t max_bytes(std::uint64_t count) const { return count; }
  void encode(gradsieve::message_info, std::span<gradsieve::index_type const>, std::span<float const>,
              std::span<std::byte>) const {}
  void decode(gradsieve::message_info, std::span<gradsieve::index_type const>, std::span<std::byte const>,
              std::span<float>) const {}
  friend bool operator==(no_bytes const&, no_bytes const&) = default;
};

void use() {
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10),
                        gradsieve::recipe{.codec = gradsieve::packed{.values = no_bytes{}}}};
}
