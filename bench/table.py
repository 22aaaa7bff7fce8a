#!/usr/bin/env python3
"""Writes report.md from what gradsieve_bench measured: the goals with their figures, and all rows."""

import argparse
import math
import pathlib
import sys

from results import Results

GOAL_ELEMENTS = 1 << 25


def ratio(family, who, densities=(0.001,), **axes):
    """The worst ratio to the floor; None unless all rows are there."""
    def value(results):
        rows = [results.one(family, who, density, **axes) for density in densities]
        return max(row.ratio for row in rows) if all(rows) else None
    return value


def times_faster(family, who, peer, densities, **axes):
    """How many times as long the peer takes, where that is least."""
    def value(results):
        pairs = [(results.one(family, who, d, **axes), results.one("peer", peer, d, **axes)) for d in densities]
        return min(b.ms / a.ms for a, b in pairs) if all(a and b for a, b in pairs) else None
    return value


def growth(figure):
    """A figure of the step at 2^27 elements over that at 2^20."""
    def value(results):
        rows = [results.one("step", "radix", 0.001, n=1 << power) for power in (20, 27)]
        return getattr(rows[1], figure) / getattr(rows[0], figure) if all(rows) else None
    return value


def time_of_codec(codec):
    """A codec's time over that of coo for the same entries: the worst of writing, reading and the densities."""
    def value(results):
        pairs = [[results.one("codec", f"{who}/{way}", density) for who in (codec, "coo")]
                 for way in ("encode", "decode") for density in (0.001, 0.01)]
        return max(row.ms / coo.ms for row, coo in pairs) if all(map(all, pairs)) else None
    return value


def apply_over_write(results):
    found = results.select("apply", density=0.01, ranks=8, n=results.n)
    return found[0].figure("write_ratio") if found and not found[0].disturbed else None


def deft_share(results):
    """1 / share of the slowest of 16 ranks."""
    found = results.select("deft", "radix", density=0.001, ranks=16)
    return 1 / found[0].figure("share_of_one") if found and not found[0].disturbed else None


def deft_step(results):
    found = results.select("step", "radix_deft", density=0.001)
    return found[0].ratio if found and not found[0].disturbed else None


def pieces_over_flat(results):
    found = results.select("pieces", "radix", density=0.001)
    return found[0].figure("flat_ratio") if found and not found[0].disturbed else None


def layerwise_over_whole(network):
    """A layerwise step over one of `whole`; the worse density."""
    def value(results):
        rows = results.select("layerwise", network)
        good = len(rows) == 2 and not any(row.disturbed for row in rows)
        return max(row.figure("whole_ratio") for row in rows) if good else None
    return value


def extra_memory(results):
    """Bytes beside the residual over those that compressor.hpp states; the worst density."""
    rows = [results.one("memory", "radix", density) for density in (0.001, 0.01)]
    if not all(rows) or any(row.figure("extra_bytes") == 0 for row in rows):
        return None

    def stated(row):
        entries = row.figure("extra_bytes") / row.figure("extra_bytes_per_k")
        return (4 << 20) + 18 * row.n / 1024 + 52 * entries + row.threads * ((1 << 20) + 32 * entries)

    return max(row.figure("extra_bytes") / stated(row) for row in rows)


LAWS = ("equal", "two_values", "alternating")

# What, its figure, the goal, what would still do, and whether more is better.
GOALS = [
    ("radix, 0.1 %: time / floor", ratio("step", "radix"), 1.08, 1.12, False),
    ("radix, 1 %: time / floor", ratio("step", "radix", (0.01,)), 1.2, 1.35, False),
    ("radix, 10 %: time / floor", ratio("step", "radix", (0.1,)), 1.8, 2.1, False),
    ("radix, 25 MiB, 0.1 %: time / floor", ratio("step", "radix", n=6553600), 1.0, 1.2, False),
    ("radix, 25 MiB, 1 %: time / floor", ratio("step", "radix", (0.01,), n=6553600), 1.1, 1.4, False),
    *((f"radix, 2^20, {100 * density:g} %: time / floor", ratio("step", "radix", (density,), n=1 << 20), goal, enough,
       False) for density, goal, enough in ((0.001, 1.25, 1.6), (0.01, 1.6, 2.1))),
    *((f"radix, 2^{power}, 1 thread, {100 * density:g} %: time / floor",
       ratio("step", "radix", (density,), n=1 << power, threads=1), goal, enough, False)
      for power, limits in ((18, ((1.25, 1.6), (1.6, 2.1))), (16, ((1.25, 1.6), (1.6, 2.1))),
                            (12, ((2, 2.7), (2.5, 3.3))))
      for density, (goal, enough) in zip((0.001, 0.01), limits)),
    ("hierarchical, 0.1 %: time / floor", ratio("step", "hierarchical"), 1.3, 1.7, False),
    ("hierarchical, 1 %: time / floor", ratio("step", "hierarchical", (0.01,)), 1.5, 1.7, False),
    ("chunked, 1 %: time / floor", ratio("step", "chunked", (0.01,)), 1.3, 1.7, False),
    ("adacomp, bins of 500: time / floor", ratio("step", "adacomp_500", (0.01,)), 1.5, 1.7, False),
    ("adacomp, bins of 50: time / floor", ratio("step", "adacomp_50", (0.1,)), 2, 2, False),
    ("deft, one rank, layers of ResNet-50: time / floor", deft_step, 1.5, 1.9, False),
    *((f"{codec}: time / coo's, written or read", time_of_codec(codec), goal, enough, False)
      for codec, goal, enough in (("delta+fp32", 2, 3), ("fixed_width+fp32", 1.5, 2.5), ("delta+fp16", 2, 3))),
    ("radix, ResNet-50's tensors as pieces: time / the flat step", pieces_over_flat, 1.05, 1.1, False),
    *((f"layerwise, {name}'s layers: time / the step of `whole`", layerwise_over_whole(network), 1.3, 1.5, False)
      for network, name in (("resnet50", "ResNet-50"), ("gpt2", "GPT-2"))),
    ("apply of 8 messages of 1 %: time / a write of n", apply_over_write, 2, 2, False),
    ("laplacian, warm band, 0.1 %: time / floor", ratio("step", "laplacian"), 1.05, 1.2, False),
    ("laplacian, warm band, 1 %: time / floor", ratio("step", "laplacian", (0.01,)), 1.15, 1.4, False),
    ("radix, first step (cold), 0.1 %: time / floor", ratio("cold", "radix"), 1.3, 1.8, False),
    *((f"{who}, law {law}, 0.1 %: time / floor", ratio("step", who, law=law), 1.5, 2.2, False)
      for who in ("radix", "laplacian") for law in LAWS),
    *((f"{who}, {dtype} gradients, 0.1 %: time / floor of 10 bytes", ratio("step", who, dtype=dtype), 1.15, 1.3, False)
      for who in ("radix", "laplacian") for dtype in ("fp16", "bf16")),
    ("libtorch's topk / radix, 0.1 %", times_faster("step", "radix", "libtorch", (0.001,)), 30, 20, True),
    ("libtorch's topk / radix, 1 %", times_faster("step", "radix", "libtorch", (0.01,)), 30, 20, True),
    *((f"published {peer} / laplacian, selection only, {100 * density:g} %",
       times_faster("select", "laplacian", f"published_{peer}", (density,)), goal, least, True)
      for peer, goal, least in (("radix", 2.0, 1.62), ("hierarchical", 1.6, 1.30)) for density in (0.001, 0.01)),
    *((f"the same on accumulators of error feedback, {peer}, {100 * density:g} %",
       times_faster("select", "laplacian", f"published_{peer}", (density,), law="ef"), math.inf, math.inf, True)
      for peer in ("radix", "hierarchical") for density in (0.001, 0.01)),
    *((f"{name} / radix, whole step, {100 * density:g} %", times_faster("step", "radix", peer, (density,)),
       math.inf, math.inf, True)
      for peer, name in (("partial_sort", "std::partial_sort"), ("nth_element", "std::nth_element"),
                         ("simd_sort", "x86-simd-sort's qselect"), ("highway", "Highway's VQSelect"))
      for density in (0.001, 0.01)),
    ("deft, ResNet-50: selection time of P = 1 / slowest of P = 16", deft_share, 12, 8, True),
    ("radix, 0.1 %: growth of time / floor from 2^20 to 2^27 elements", growth("ratio"), 1.15, 1.3, False),
    ("the same of time / element: caches hold 2^20", growth("ns_per_element"), math.inf, math.inf, False),
    ("radix, memory beside the residual / what compressor.hpp states", extra_memory, 1, 1.1, False),
]

# Other limits for kernels of AVX2.
AVX2 = {
    "adacomp, bins of 500: time / floor": (2.5, 2.5),
    "adacomp, bins of 50: time / floor": (3.5, 3.5),
    "apply of 8 messages of 1 %: time / a write of n": (2.5, 2.5),
}


def verdict_of(value, goal, enough, more):
    if goal == math.inf:
        return "for information"
    factor = -1 if more else 1
    words = [word for word, limit in (("met", goal), ("**would do**", enough)) if factor * value <= factor * limit]
    return (words or ["**missed**"])[0]


def common_verdict(results, figure, *limits):
    """The verdict that all repeats agree on."""
    values = [figure(repeat) for repeat in results.repeats]
    if len(values) < 3 or None in values:
        return "for information" if limits[0] == math.inf else "fewer than 3 runs"
    verdicts = {verdict_of(value, *limits) for value in values}
    return verdicts.pop() if len(verdicts) == 1 else f"undecided: {min(values):.3g} to {max(values):.3g}"


def write_goals(results, out):
    print("## Goals\n", file=out)
    print("Figures are those of the run with the median time. There is a verdict if three runs agree on it.\n",
          file=out)
    measured = [(value, *goal) for goal in GOALS if (value := goal[1](results)) is not None]
    if not measured:
        print("None of them was measured: their rows are those of `bench/report.sh`.\n", file=out)
        return
    if results.n != GOAL_ELEMENTS:
        print(f"**The goals are for n = 2^25; this is a run with n = {results.n:,}.**\n", file=out)
    print("| what | goal | would do | measured | verdict |", "|---|--:|--:|--:|---|", sep="\n", file=out)
    for value, what, figure, goal, enough, more in measured:
        if results.context.get("instructions") == "AVX2":
            goal, enough = AVX2.get(what, (goal, enough))
        limits = ["–" if limit == math.inf else f"{'≥' if more else '≤'} {limit:g}" for limit in (goal, enough)]
        verdict = common_verdict(results, figure, goal, enough, more)
        print(f"| {what} | {limits[0]} | {limits[1]} | {value:.3g} | {verdict} |", file=out)
    known = {what for _, what, *_ in measured}
    if left := [what for what, *_ in GOALS if what not in known]:
        print(f"\nNot measured, or disturbed: {'; '.join(left)}.", file=out)
    print(file=out)


def write_floors(results, out):
    """How much the floor itself varied: where it is much, the machine did something else as well."""
    floors = {}
    for row in results.rows:
        floors.setdefault((row.n, row.dtype, row.threads), []).append(row.floor_ms)
    print("## The floor\n", "Its least, median and largest median over the rows of one size. A row whose floor took over "
          "2.5 times the least is disturbed, and so is one whose threads waited for each other in an empty pass after a "
          "tenth of its samples, or half of whose samples of a millisecond or more took over 2.5 times the least: "
          "something else ran. It was repeated, counts for no goal, and shows no figures.\n",
          "| n | type | threads | rows | least ms | median ms | largest ms | median GB/s |",
          "|--:|---|--:|--:|--:|--:|--:|--:|", sep="\n", file=out)
    for (n, dtype, threads), values in sorted(floors.items()):
        values.sort()
        median = values[len(values) // 2]
        moved = (12 if dtype == "fp32" else 10) * n / 1e6  # MB: reads both arrays, writes one
        print(f"| {n:,} | {dtype} | {threads} | {len(values)} | {values[0]:.4g} | {median:.4g} | {values[-1]:.4g} | "
              f"{moved / median:.3g} |", file=out)
    print(file=out)


def over_floor(row):
    """Time over the floor's; where a row was repeated, the median run with the least and the largest."""
    spread = f" ({row.spread[0]:.3g}–{row.spread[1]:.3g})" if row.spread else ""
    return f"{row.ratio:.3g}{spread}"


def write_rows(results, out):
    """All rows, a table a family, with the figures that its rows have beyond the common ones."""
    common = {"floor_ratio", "floor_ms", "ns_per_element", "bytes_per_second", "q1_ms", "q3_ms", "samples",
              "measured_again", "k", "kept_waiting", "disturbed"}
    google = {"name", "run_name", "run_type", "repetitions", "repetition_index", "threads", "iterations", "real_time",
              "cpu_time", "time_unit", "label", "family_index", "per_family_instance_index"}
    for family in dict.fromkeys(row.family for row in results.rows):
        rows = [row for row in results.rows if row.family == family]
        own = list(dict.fromkeys(name for row in rows for name in row.figures if name not in common | google))
        ranks = ["P"] if any("ranks:" in row.figures["name"] for row in rows) else []
        head = ["", *ranks, "n", "density", "law", "type", "threads", "ms", "quartiles", "floor ms", "/ floor",
                "ns / element", "GB/s", "samples", *own]
        print(f"### {family}\n", "| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1), sep="\n",
              file=out)
        for row in rows:
            names = [row.who, *([str(row.ranks)] if ranks else []), f"{row.n:,}", row.amount, row.law,
                     row.dtype, row.threads]
            if row.disturbed:
                cells = [*names, "disturbed"] + ["–"] * (len(head) - len(names) - 1)
                print("| " + " | ".join(map(str, cells)) + " |", file=out)
                continue
            figures = [f"{row.figures[name]:.4g}" if name in row.figures else "" for name in own]
            cells = [*names, f"{row.ms:.4g}",
                     f"{row.figure('q1_ms'):.4g}–{row.figure('q3_ms'):.4g}", f"{row.floor_ms:.4g}",
                     over_floor(row), f"{row.ns_per_element:.3g}",
                     f"{row.figure('bytes_per_second') / 1e9:.3g}",
                     f"{row.figure('samples'):g}", *figures]
            print("| " + " | ".join(map(str, cells)) + " |", file=out)
        print(file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=pathlib.Path, nargs="+", help="what gradsieve_bench wrote, and peer_numpy.py")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="Markdown file [report.md beside the JSON]")
    chosen = parser.parse_args()
    results = Results(chosen.json)
    output = chosen.output or chosen.json[0].with_name("report.md")
    context = results.context
    facts = [("processor", f"{context.get('cpu')}, {context['num_cpus']} cores, {context.get('instructions')}"),
             ("threads", results.threads), ("compiler", context.get("compiler")),
             ("commit", context.get("commit", "not told")), ("date", context["date"]),
             ("command", f"`{context.get('command')}`")]
    try:
        with open(output, "w", encoding="utf-8") as out:
            print("# Benchmark report\n", *(f"- {name}: {value}" for name, value in facts), sep="\n", file=out)
            print("\nTimes are medians; the floor is the loop `r[i] += g[i]` on arrays of the same size with the same "
                  "threads, timed in turn with every row.\n", file=out)
            write_goals(results, out)
            write_floors(results, out)
            print("## All rows\n", file=out)
            write_rows(results, out)
    except OSError as error:
        sys.exit(f"table.py: cannot write '{output}': {error.strerror}")
    print(f"table.py: wrote {output}")


if __name__ == "__main__":
    main()
