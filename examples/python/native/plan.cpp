// Planners for DDP's buckets, and advise(), as C functions for ctypes. They are no public interface.
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "../../advise/advise.hpp"
#include "answer.hpp"
#include "planners.hpp"

using namespace example;
using c_interface::guarded;
using c_interface::need;

extern "C" {

/// Rows of "name", "bytes", "backward", "forward", "dtype", "element_bytes" as text, and where each group ends, its
/// bytes, its start and its finish; behind them the certificate, where there is one. `first` and `cap`: torch's rule
/// instead of a planner's.
gradsieve_status gradsieve_plan_make(char const* const* rows, std::size_t count, double a, double b,
                                     char const* planner, std::uint64_t first, std::uint64_t cap, char const** to,
                                     std::size_t* size) {
  return guarded([&] {
    need(planner != nullptr, "planner");
    auto const made = make_plan(trace_of({rows, count}), a, b, planner, first, cap);
    answer all;
    for (auto const& each : made.groups()) all << each.end << each.bytes << each.start << each.finish;
    if (auto const excess = made.certificate()) all << *excess;
    std::move(all).write(to, size);
  });
}
/// Seconds of a group's exchange, startup and a byte, over a link by name or ALPHA,BETA.
gradsieve_status gradsieve_plan_link_cost(char const* link, char const* exchange, int workers, double density,
                                          double entry_bytes, double* a, double* b) {
  return guarded([&] {
    need(link != nullptr && exchange != nullptr, "link or exchange");
    auto const cost = link_cost(link, exchange, workers, density, entry_bytes);
    *a = cost.a;
    *b = cost.b;
  });
}
/// The same from measured sizes and seconds.
gradsieve_status gradsieve_plan_fit_cost(std::uint64_t const* bytes, double const* seconds, std::size_t count,
                                         double* a, double* b) {
  return guarded([&] {
    std::vector<gs::measured_point> points;
    for (std::size_t i = 0; i < count; ++i) points.push_back({bytes[i], seconds[i]});
    auto const fit = gs::fit_affine(std::move(points));
    *a = fit.cost.a;
    *b = fit.cost.b;
  });
}
/// The scheduler's CSV of rows as above.
gradsieve_status gradsieve_plan_write(char const* const* rows, std::size_t count, char const** to, std::size_t* size) {
  return guarded([&] {
    std::ostringstream text;
    gs::write_csv(text, trace_of({rows, count}));
    answer all;
    all << text.str();
    std::move(all).write(to, size);
  });
}
/// Rows of the scheduler's CSV.
gradsieve_status gradsieve_plan_read(char const* text, char const** to, std::size_t* size) {
  return guarded([&] {
    need(text != nullptr, "text");
    std::istringstream in{text};
    answer all;
    for (auto const& each : gs::read_csv(in))
      all << each.name << each.bytes << each.backward << each.forward << each.dtype << each.element_bytes;
    std::move(all).write(to, size);
  });
}

/// Is compression worth its while? `cores` of a rank that runs TCP over a link of a nominal rate; 0: its seconds were
/// measured. The sentence; whether to compress; the densities and bytes a second at which it breaks even; and of each
/// choice its name, seconds on the link, local seconds and speed-up.
gradsieve_status gradsieve_plan_advise(gradsieve_layer const* layers, std::uint32_t const* dimensions,
                                       std::size_t count, int workers, char const* link, double density, double cores,
                                       char const** to, std::size_t* size) {
  return guarded([&] {
    need(link != nullptr, "link");
    auto const menu = tools::usual_choices(density);
    auto const transport = cores > 0 ? tools::transport_cost::ethernet(cores) : tools::transport_cost{};
    auto const made = tools::advise(c_interface::layout_of(layers, dimensions, count), workers,
                                    tools::network_named(link).link, std::span{menu}, {}, transport);
    answer all;
    all << made.sentence << int{made.compress} << made.break_even_density << made.least_bandwidth
        << made.break_even_bandwidth << made.choices[made.best].choice.name;
    for (auto const& each : made.choices) all << each.choice.name << each.exchange << each.local << each.speedup;
    std::move(all).write(to, size);
  });
}

}  // extern "C"
