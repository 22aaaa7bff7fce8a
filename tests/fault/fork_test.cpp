// A child after fork() has one thread: what needs no other works with the same bits, what does throws a sentence.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#if __has_include(<unistd.h>) && __has_include(<sys/wait.h>)
#include <sys/wait.h>
#include <unistd.h>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/overlap.hpp>

#include "groups.hpp"
#include "steps.hpp"

namespace gs = gradsieve;
using steps::contains;
using steps::ending;

namespace {

/// What f says went wrong in a child; a child that hangs is killed and says so.
std::string in_child(std::function<std::string()> const& f) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  std::fflush(nullptr);
  auto const child = fork();
  if (child == 0) {
    alarm(60);
    auto const said = ending([&] {
      auto const text = f();
      static_cast<void>(!write(ends[1], text.data(), text.size()));
    });
    static_cast<void>(!write(ends[1], said.data(), said.size()));
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char each = 0;
  while (read(ends[0], &each, 1) == 1) text += each;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) text += "killed by signal " + std::to_string(WTERMSIG(status));
  return text;
}

auto const large = gs::layout{{"weight", 300'000}, {"bias", 500}};  // enough for a team of threads
auto const recipe = gs::recipe{.density = 0.01};

auto make() { return gs::compressor{gs::host{.threads = 3}, large, recipe}; }

template <class Compressor>
std::vector<float> step(Compressor& compressor, std::uint64_t at) {
  auto gradient = steps::gradient(large.size(), 0, at);
  compressor.exchange(gs::self{}, gradient);
  return gradient;
}

}  // namespace

TEST_CASE("a compressor goes on in a child, with the parent's bits; so does one that is made there") {
  auto ours = make();
  step(ours, 0);
  auto reference = make();
  step(reference, 0);
  auto const second = step(reference, 1);
  auto const third = step(reference, 2);
  CHECK(in_child([&] {
          steps::findings found;
          found.expect(steps::same_bits(step(ours, 1), second), "another update in the child");
          auto own = make();
          step(own, 0);
          found.expect(steps::same_bits(step(own, 1), second), "another update of a compressor made in the child");
          found.expect(in_child([&] { return steps::same_bits(step(ours, 2), third) ? "" : "another update"; }) == "",
                       "a child's child");
          std::string of_thread = "no thread";
          std::jthread{[&] { of_thread = steps::same_bits(step(ours, 2), third) ? "" : "another update"; }}.join();
          found.expect(of_thread.empty(), "a thread of the child: " + of_thread);
          return found.text();
        }) == "");
  CHECK(steps::same_bits(step(ours, 1), second));
}

TEST_CASE("an overlap in a child throws, and can be destroyed") {
  gs::layout const layers{{"a", 3}, {"b", 4}};
  auto const chosen = groups::plan_of(layers, {1, 0}, {1, 2});
  auto const means = [](gs::layout const&) { return gs::dense_mean{}; };
  std::string const sentence =
      "communication_error: gradsieve: this process was forked from the one that made this overlap: the thread that "
      "exchanges groups is in that one";
  using owner = decltype(gs::overlap{gs::self{}, layers, chosen, means});
  auto exchange = std::make_unique<owner>(gs::self{}, layers, chosen, means);
  std::vector<float> gradient(7, 1.0f);
  CHECK(in_child([&] {
          steps::findings found;
          found.expect(ending([&] { exchange->begin(gradient); }) == sentence, "begin()");
          found.expect(ending([&] { exchange->run(gradient, [](auto const&) {}); }) == sentence, "run()");
          exchange.reset();
          owner own{gs::self{}, layers, chosen, means};
          own.begin(gradient);
          own.wait();
          return found.text();
        }) == "");

  exchange->begin(gradient);
  CHECK(in_child([&] {
          steps::findings found;
          found.expect(ending([&] { exchange->ready(1); }) == sentence, "ready()");
          found.expect(ending([&] { exchange->flush(); }) == sentence, "flush()");
          found.expect(ending([&] { exchange->wait(); }) == sentence, "wait()");
          exchange->cancel();
          exchange.reset();
          return found.text();
        }) == "");
  exchange->wait();
  CHECK(gradient == std::vector<float>(7, 0.0f));
}

TEST_CASE("ranks that are threads are not in a child") {
  gs::threads::group all{2};
  float value = 1;
  auto const sum = [&] { all.communicator(0).all_reduce(0, std::span{&value, 1}, gs::reduction::sum); };
  CHECK(in_child([&] {
          steps::findings found;
          found.expect(
              contains(ending(sum), "communication_error: gradsieve: rank 0 was forked away from the group's threads"),
              ending(sum));
          all.leave(0);
          gs::threads::group own{1};
          own.communicator(0).all_reduce(0, std::span{&value, 1}, gs::reduction::sum);
          return found.text();
        }) == "");
}

TEST_CASE("a group in which a rank waits, and a running overlap, are dropped in a child") {
  auto all = std::make_unique<gs::threads::group>(2);
  float values[] = {1, 2};
  auto const sum = [&](int rank) {
    all->communicator(rank).all_reduce(0, std::span{&values[rank], 1}, gs::reduction::sum);
  };
  gs::layout const layers{{"a", 3}, {"b", 4}};
  auto const means = [](gs::layout const&) { return gs::dense_mean{}; };
  using owner = decltype(gs::overlap{all->communicator(0), layers, groups::plan_of(layers, {1, 0}, {1, 2}), means});
  {
    std::jthread const waits{[&] { sum(1); }};
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    CHECK(in_child([&] {
            steps::findings found;
            found.expect(!all->was_told(1), "was_told()");
            all->leave(1);
            all.reset();
            return found.text();
          }) == "");
    sum(0);
  }
  CHECK(values[0] == 3);
  CHECK(values[1] == 3);

  std::vector<float> first(7, 1.0f);
  std::vector<float> second(7, 3.0f);
  auto const made = [&](int rank) {
    return std::make_unique<owner>(all->communicator(rank), layers, groups::plan_of(layers, {1, 0}, {1, 2}), means);
  };
  std::unique_ptr<owner> other;
  std::unique_ptr<owner> exchange;
  {
    std::jthread const makes{[&] { other = made(1); }};
    exchange = made(0);
  }
  auto const go = [](owner& which, std::vector<float>& gradient) {
    which.begin(gradient);
    which.ready(0);
    which.ready(1);
  };
  go(*exchange, first);
  std::this_thread::sleep_for(std::chrono::milliseconds{100});  // its thread waits for the other rank
  CHECK(in_child([&] {
          exchange.reset();
          other.reset();
          all.reset();
          return std::string{};
        }) == "");
  {
    std::jthread const waits{[&] {
      go(*other, second);
      other->wait();
    }};
    exchange->wait();
  }
  CHECK(first == std::vector<float>(7, 2.0f));
}

#else

TEST_CASE("skipped: this system has no fork()") {}

#endif
