// Every exchange passes the conformance suite, and wrong ones do not.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <exception>
#include <string>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

#include "exchange_conformance.hpp"

namespace gs = gradsieve;

TEST_CASE("exchanges of the core") {
  CHECK(exchange_conformance::run(gs::recipe{.exchange = gs::gather{}}) == "");
  CHECK(exchange_conformance::run(gs::recipe{.exchange = gs::index_union{}}) == "");
  CHECK(exchange_conformance::run(gs::recipe{.partitioner = gs::cyclic{}}) == "");
  CHECK(exchange_conformance::run(gs::recipe{.exchange = gs::reduce_scatter{}}, {.shards = true}) == "");
  CHECK(exchange_conformance::run(gs::recipe{.exchange = gs::coded_all_reduce{}}) == "");
}

TEST_CASE("with codecs that lose bits") {
  CHECK(exchange_conformance::run(gs::recipe{.codec = gs::packed{.values = gs::int4{}}}) == "");
  CHECK(exchange_conformance::run(
            gs::recipe{.codec = gs::packed{.values = gs::int4{}}, .exchange = gs::coded_all_reduce{}}) == "");
  CHECK(exchange_conformance::run(gs::recipe{.partitioner = gs::deft{}, .codec = gs::packed{.values = gs::bf16{}}}) ==
        "");
}

TEST_CASE("published exchanges") {
  CHECK(exchange_conformance::run(gs::recipe{.selector = gs::random_k{}, .exchange = gs::shared_choice{}}) == "");
}

namespace wrong {

enum class fault { ranks, lost, half, waits };

/// gather, but for a fault.
template <fault Fault>
struct exchange {
  static constexpr gs::exchange_traits traits{.encodes = true};

  template <class Workspace>
  struct buffers : gs::gather::buffers<Workspace> {
    template <class Comm, class Codec>
    gs::exchange_result run(gs::exchange_round<Comm, Workspace, Codec> const& round) {
      if (Fault == fault::waits && round.failure) std::rethrow_exception(round.failure);
      auto result = gs::gather::buffers<Workspace>::run(round);
      auto const half = result.sent.indices.size() / 2;
      if (Fault == fault::ranks && round.comm.rank() == 1) result.updates = result.updates.first(1);
      if (Fault == fault::lost) result.updates = {};
      if (Fault == fault::half) result.sent = {result.sent.indices.first(half), result.sent.values.first(half), {}};
      return result;
    }
  };
  [[maybe_unused]] friend bool operator==(exchange const&, exchange const&) = default;
};

template <fault Fault>
std::string first_line() {
  auto const text = exchange_conformance::run(gs::recipe{.exchange = exchange<Fault>{}},
                                              {.patience = std::chrono::milliseconds{300}});
  return text.substr(0, text.find('\n'));
}

}  // namespace wrong

TEST_CASE("wrong exchanges are reported, with the step") {
  using wrong::fault;
  CHECK(wrong::first_line<fault::ranks>() ==
        "2 ranks, n 4, density 0.4, step 0: element 1 is 8 on rank 1, and 0 on another");
  CHECK(wrong::first_line<fault::lost>() ==
        "1 ranks, n 4, density 0.4, step 0: element 0 is 0, the ranks gave -5 in all");
  CHECK(wrong::first_line<fault::half>() ==
        "1 ranks, n 4, density 0.4, step 0: element 1 is 16, the ranks gave 0 in all");
  CHECK(
      wrong::first_line<fault::waits>() ==
      "2 ranks, n 0, density 0.1, step 7: a rank fails, and rank 0 waits for it: gradsieve: rank 1 has left the group, "
      "rank 0 cannot go on");
}
