#!/usr/bin/env python3
"""Writes report.md and the pictures from the *.json of bench/gpu.sh in a folder: goals beside predictions and outcomes,
floors, peers, all rows. With --predictions it writes the page of goals and predictions alone, with --check it compares
that page."""

import argparse
import io
import json
import math
import pathlib
import sys

from device_model import BUCKET, UNCERTAIN, floors_of, microseconds_of, write_tables
from plot import FLOOR, NAMES, STYLES, percent, plain_ticks, power

LARGE = (2**26, 2**27, 2**28, 2**30)
TOPK = ("device_topk", "device_topk_keys")


class Row:
    """One row: its names, its axes and its figures."""

    def __init__(self, entry):
        parts = entry["name"].split("/")
        axes = dict(part.split(":", 1) for part in parts if ":" in part)
        self.ranks = axes.get("ranks")
        names = [part for part in parts if ":" not in part and part != "manual_time"]
        self.family, self.who = names[0], "/".join(names[1:]) + (f", {self.ranks} ranks" if self.ranks else "")
        self.n, self.density = int(axes["n"]), float(axes.get("density", 0))
        self.law, self.dtype, self.run = axes.get("law", ""), axes["dtype"], axes.get("run", "")
        self.key = (self.family, self.who, self.n, self.density, self.law, self.dtype, self.run)
        self.error = entry.get("error_message", "it failed") if entry.get("error_occurred") else None
        self.ms = float(entry.get("real_time", 0))
        self.ratio = float(entry.get("floor_ratio", 0))
        self.label = entry.get("label", "")
        self.figures = entry

    def figure(self, name):
        return float(self.figures.get(name, math.nan))


def read(path):
    """A file's context and entries; of one that was cut off, those that are whole."""
    text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text)
    except ValueError:
        end = text.rfind("\n    },")
        if end < 0:
            print(f"gpu_report.py: '{path}' has no whole row")
            return {}, []
        content = json.loads(text[:end] + "\n    }]}")
        print(f"gpu_report.py: '{path}' was cut off; its whole rows are used")
    return content.get("context", {}), content.get("benchmarks", [])


class Results:
    """All rows of a folder: of a row that was measured twice, the last. Rows that failed are in `errors`."""

    def __init__(self, folder):
        self.context, rows = {}, {}
        for name in ("core", "torch", "peers", "sweep"):  # as they were taken
            if (folder / f"{name}.json").exists():
                context, entries = read(folder / f"{name}.json")
                self.context |= {key: value for key, value in context.items() if key not in self.context}
                for entry in entries:
                    row = Row(entry)
                    rows[row.key] = row
        if not rows:
            sys.exit(f"gpu_report.py: no rows in '{folder}'")
        self.rows = [row for row in rows.values() if not row.error]
        self.errors = [row for row in rows.values() if row.error]

    def select(self, family, who=None, law="laplace", dtype="fp32", run="eager", **axes):
        return [row for row in self.rows if row.family == family and who in (None, row.who)
                and (row.law, row.dtype, row.run) == (law, dtype, run)
                and all(getattr(row, name) in value if isinstance(value, tuple) else getattr(row, name) == value
                        for name, value in axes.items())]


# ---- Goals ---------------------------------------------------------------------------------------------------------

def ratio(family, densities, sizes=LARGE, **axes):
    """The worst ratio to the floor, for a selector; None unless every density is there."""
    def value(results, who):
        rows = results.select(family, who, density=densities, n=sizes, **axes)
        return max((row.ratio for row in rows), default=None)
    return value


def microseconds(n):
    def value(results, who):
        rows = results.select("step", who, n=n, density=(0.001, 0.01), run="graph")
        return max((1e3 * row.ms for row in rows), default=None)
    return value


def times_faster(peers, densities, run="eager", sizes=LARGE, only=None):
    """How many times as long the best of the peers takes, where that is least."""
    def value(results, who):
        if only not in (None, who):
            return None
        found = []
        for row in results.select("step", who, density=densities, n=sizes):
            theirs = [other.ms for peer in peers
                      for other in results.select("peer", peer, density=row.density, n=row.n, run=run)]
            if theirs:
                found.append(min(theirs) / row.ms)
        return min(found, default=None)
    return value


def most(figure):
    def value(results, who):
        found = [row.figure(figure) for row in results.rows if row.family in ("step", "cold") and row.who == who]
        found = [number for number in found if not math.isnan(number)]
        return max(found, default=None)
    return value


def captured(results, who):
    return 0 if any(row.run == "graph" and row.family == "step" and row.who == who for row in results.rows) else None


def narrow_residual(results, who):
    return ratio("step", (0.001,))(results, "radix_bf16_residual") if who == "radix" else None


# Predictions are those of device_model.py, a model's and not a measurement's.
# What, goal, not above (or, where more is better, not below), prediction, figure of a selector, more is better.
GOALS = [
    ("n ≥ 2^26, density ≤ 0.1 %, with hint", 1.05, 1.15, floors_of(2**28, 0.001), ratio("step", (0.0001, 0.001))),
    ("n ≥ 2^26, density ≤ 0.1 %, without", 1.13, 1.25, floors_of(2**28, 0.001, cold=True),
     ratio("cold", (0.0001, 0.001))),
    ("n ≥ 2^26, density 1 %, with hint", 1.08, 1.2, floors_of(2**28, 0.01), ratio("step", (0.01,))),
    ("n ≥ 2^26, density 1 %, without", 1.15, 1.35, floors_of(2**28, 0.01, cold=True), ratio("cold", (0.01,))),
    ("n ≥ 2^26, density 10 %, with hint", 1.25, 1.5, floors_of(2**28, 0.1), ratio("step", (0.1,))),
    ("n ≥ 2^26, density 10 %, without", 1.45, 1.8, floors_of(2**28, 0.1, cold=True), ratio("cold", (0.1,))),
    ("25 MiB of fp32, ≤ 1 %, with hint", 1.25, 1.6, floors_of(BUCKET, 0.01), ratio("step", (0.001, 0.01), (BUCKET,))),
    ("25 MiB of fp32, ≤ 1 %, without", 1.6, 2.2, floors_of(BUCKET, 0.01, cold=True),
     ratio("cold", (0.001, 0.01), (BUCKET,))),
    ("n = 2^16, ≤ 1 %, in a graph, µs", 8, 16, microseconds_of(2**16, 0.001), microseconds(2**16)),
    ("n = 2^20, ≤ 1 %, in a graph, µs", 14, 28, microseconds_of(2**20, 0.01), microseconds(2**20)),
    ("all equal, n ≥ 2^26", 2.0, 3.0, floors_of(2**28, 0.001, passes=3), ratio("step", (0.001, 0.01), law="equal")),
    ("90 % zeros, n ≥ 2^26", 2.0, 3.0, floors_of(2**28, 0.001), ratio("step", (0.001, 0.01), law="zeros90")),
    ("hint wrong by 2 ×, n ≥ 2^26", 2.0, 3.0, floors_of(2**28, 0.001, passes=5),
     ratio("step", (0.001, 0.01), law="doubling")),
    ("index-ordered, deterministic, n ≥ 2^26, ≤ 1 %", 1.15, 1.3, floors_of(2**28, 0.01),
     ratio("step", (0.001, 0.01))),
    ("torch eager topk / a step, n ≥ 2^26, 0.1 and 1 %", 7, 5, "none", times_faster(("torch_topk",), (0.001, 0.01)), True),
    ("cub::DeviceTopK / a step, n ≥ 2^26, 1 %", 3, 2, "none", times_faster(TOPK, (0.01,)), True),
    ("cub::DeviceSelect, oracle / a step, n ≥ 2^26, 0.1 and 1 %", 1.3, 1.0, "none",
     times_faster(("select_oracle",), (0.001, 0.01)), True),
    ("published radixSelect / laplacian, n ≥ 2^26, 0.1 and 1 %", 2.0, 1.62, "none",
     times_faster(("published_radix",), (0.001, 0.01), only="laplacian"), True),
    ("published hierarchical / laplacian, n ≥ 2^26, 0.1 and 1 %", 1.6, 1.30, "none",
     times_faster(("published_hierarchical",), (0.001, 0.01), only="laplacian"), True),
    ("host synchronisations in a step (0: it was captured in a graph)", 0, 0, "0", captured),
    ("allocations in a step", 0, 0, "0", most("allocations")),
    ("fp16 gradients, n ≥ 2^26, 0.1 %, over their own floor", math.inf, math.inf, "none",
     ratio("step", (0.001,), dtype="fp16")),
    ("bf16 gradients, n ≥ 2^26, 0.1 %, over their own floor", math.inf, math.inf, "none",
     ratio("step", (0.001,), dtype="bf16")),
    ("residual as bfloat16, n ≥ 2^26, 0.1 %, over the floor with binary32", math.inf, math.inf, "none",
     narrow_residual),
]


def write_goals(results, out):
    """Without results: goals and predictions."""
    print("Figures are times of a step (accumulate, select, emit, residual) over the in-place accumulate kernel "
          "`r += lr * g` on arrays of the same size in the same run, where no unit is named.\n", file=out)
    print("| what | goal | not beyond | predicted | outcome: radix | laplacian | |", "|---|--:|--:|---|--:|--:|---|",
          sep="\n", file=out)
    for what, goal, enough, prediction, measure, *more in GOALS:
        sign, factor = ("≥", -1) if more else ("≤", 1)
        limits = ["–" if math.isinf(limit) else f"{sign} {limit:g}" for limit in (goal, enough)]
        if results is None:
            print(f"| {what} | {limits[0]} | {limits[1]} | {prediction} | | | |", file=out)
            continue
        values = [measure(results, who) for who in ("radix", "laplacian")]
        known = [factor * value for value in values if value is not None]
        if not known:
            verdict = "not measured"
        elif math.isinf(goal):
            verdict = "for information"
        else:
            first = known[0]  # radix where it is there: the exact selector and the default
            words = [word for word, limit in (("met", goal), ("would do", enough)) if first <= factor * limit]
            verdict = (words or ["**missed**"])[0]
        shown = ["–" if value is None else f"{value:.3g}" for value in values]
        print(f"| {what} | {limits[0]} | {limits[1]} | {prediction} | {shown[0]} | {shown[1]} | {verdict} |", file=out)
    print(file=out)


def write_predictions(out):
    print("# The device side: goals and predictions\n", file=out)
    print("bench/gpu.sh measures all of this in one call on a machine with a GPU, and writes the first table with the "
          "outcomes into its report. Predictions are a model's, bench/device_model.py: bytes / bandwidth and what each "
          "kernel waits for, fitted to kernel times that CUPTI gave on an H200 (2026-11-26; whole steps: "
          "results/nvidia-h200). For an H100 only the bandwidth differs, and none was measured. What is waited for may be off by "
          f"{UNCERTAIN * 100:g} % either way, which gives the least and the most in brackets. "
          "`bench/gpu_report.py --predictions bench/results/cuda-predictions.md` writes this page, and a test holds it "
          "against the script.\n", file=out)
    write_goals(None, out)
    write_tables(out)


# ---- The report ----------------------------------------------------------------------------------------------------

def write_floors(results, out):
    rows = [row for row in results.rows if row.family == "floor"]
    print("## The floor\n", "| n | type | accumulate ms | TB/s | launch | copy ms | TB/s |", "|--:|---|--:|--:|---|--:|--:|",
          sep="\n", file=out)
    for row in sorted((row for row in rows if row.who == "accumulate"), key=lambda row: (row.dtype, row.n)):
        copy = [other for other in rows if other.who == "copy" and (other.n, other.dtype) == (row.n, row.dtype)]
        cells = [f"{copy[0].ms:.4g}", f"{copy[0].figure('bytes_per_second') / 1e12:.3g}"] if copy else ["–", "–"]
        print(f"| {row.n:,} | {row.dtype} | {row.ms:.4g} | {row.figure('bytes_per_second') / 1e12:.3g} | {row.label} | "
              f"{cells[0]} | {cells[1]} |", file=out)
    print(file=out)


def write_peers(results, out):
    """The whole step in other ways, in units of radix with a hint."""
    rows = [row for row in results.rows if row.family == "peer"]
    if not rows:
        return
    print("## The same step in other ways: ms (times as long as radix with a hint)\n", file=out)
    points = sorted({(row.n, row.density) for row in rows})
    print("| | " + " | ".join(f"{n:,}, {percent(density)}" for n, density in points) + " |",
          "|---|" + "--:|" * len(points), sep="\n", file=out)
    own = [row for row in results.rows if row.family in ("step", "cold") and row.who in NAMES
           and (row.law, row.dtype) == ("laplace", "fp32")]
    lines = {}
    for row in own + rows:
        name = row.who + (", graph" if row.run == "graph" else "") + (", no hint" if row.family == "cold" else "")
        lines.setdefault(("gradsieve " if row.family != "peer" else "") + name, {})[row.n, row.density] = row
    base = lines.get("gradsieve radix", {})
    for name, found in lines.items():
        cells = []
        for point in points:
            row, unit = found.get(point), base.get(point)
            times = f" ({row.ms / unit.ms:.3g} ×)" if row and unit else ""
            cells.append(f"{row.ms:.4g}{times}" if row else "")
        if any(cells):
            print(f"| {name} | " + " | ".join(cells) + " |", file=out)
    print(file=out)


def write_rows(results, out):
    """All rows, a table a family, with the figures that its rows have beyond the common ones."""
    print("## All rows\n", file=out)
    figures = ("selected_per_k", "allocations", "memory_bytes")
    for family in dict.fromkeys(row.family for row in results.rows):
        rows = [row for row in results.rows if row.family == family]
        own = [name for name in figures if any(name in row.figures for row in rows)]
        head = ["", "n", "density", "law", "type", "run", "ms", "quartiles", "/ floor", "TB/s", "samples", *own]
        print(f"### {family}\n", "| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1), sep="\n", file=out)
        for row in sorted(rows, key=lambda row: row.key):
            cells = [row.who, f"{row.n:,}", percent(row.density), row.law, row.dtype, row.run, f"{row.ms:.4g}",
                     f"{row.figure('q1_ms'):.4g}–{row.figure('q3_ms'):.4g}", f"{row.ratio:.3g}" if row.ratio else "",
                     f"{row.figure('bytes_per_second') / 1e12:.3g}", f"{row.figure('samples'):g}",
                     *(f"{row.figures[name]:.4g}" if name in row.figures else "" for name in own)]
            print("| " + " | ".join(cells) + " |", file=out)
        print(file=out)


def write_report(results, facts, out):
    context = results.context
    print("# Benchmark report of the device side\n", file=out)
    names = ("gpu", "capability", "multiprocessors", "l2_bytes", "memory_bytes", "compiler", "torch", "date")
    for name, value in [*facts.items(), *((name, context[name]) for name in names if name in context)]:
        print(f"- {name}: {value}", file=out)
    print("\nTimes are medians from CUDA events. Before each sample memory of four times the L2 cache is read, so that "
          "nothing of use is cached and the host is ahead of the device. Steps and peers were checked: entries are the "
          "accumulator's values, what stays is the rest bit by bit, nothing left is larger than anything sent, and the "
          "count is what the selector promises. What failed is listed as an error and counts for nothing. With hint: "
          "after 24 steps of error feedback; without: the hints are forgotten before each step.\n", file=out)
    print("## Goals, predictions, outcomes\n", file=out)
    write_goals(results, out)
    if results.errors:
        print("## Errors\n", *(f"- {'/'.join(map(str, row.key))}: {row.error}" for row in results.errors), "", sep="\n",
              file=out)
    write_floors(results, out)
    write_peers(results, out)
    write_rows(results, out)


# ---- Pictures ------------------------------------------------------------------------------------------------------

def draw_lines(axes, results, x, y, **axes_of_rows):
    """A line for each selector, with a hint and without."""
    found = []
    for family, line in (("step", "-"), ("cold", ":")):
        for who, name in NAMES.items():
            rows = sorted(results.select(family, who, **axes_of_rows), key=x)
            if len(rows) < 2:
                continue
            color, marker = STYLES[who]
            axes.plot([x(row) for row in rows], [y(row) for row in rows], line, color=color, marker=marker, markersize=5,
                      linewidth=1.4, label=name + (", no hint" if family == "cold" else ""))
            found += rows
    return found


def draw_time(results, pyplot):
    figure, axes = pyplot.subplots(figsize=(8, 5))
    rows = draw_lines(axes, results, lambda row: row.n, lambda row: row.ratio, density=0.001)
    if not rows:
        return "steps at two sizes or more"
    axes.axhline(1, linewidth=1.4, label="floor: r += lr g", **FLOOR)
    axes.set_yscale("log")
    plain_ticks(axes.yaxis, [row.ratio for row in rows] + [1])
    axes.set_xscale("log", base=2)
    axes.set_xlabel("elements n")
    axes.set_ylabel("time of a step / time of the floor")
    axes.legend(fontsize=9)
    axes.set_title(f"A whole step, density 0.1 %, fp32, {results.context.get('gpu', '')}", fontsize=11)
    return figure


def draw_density(results, pyplot):
    sizes = [row.n for row in results.select("step", "radix", density=0.01)]
    n = 2**28 if 2**28 in sizes else max(sizes, default=0)
    figure, axes = pyplot.subplots(figsize=(8, 5))
    rows = draw_lines(axes, results, lambda row: 100 * row.density, lambda row: row.ratio, n=n)
    if not rows:
        return "steps at two densities or more"
    axes.axhline(1, linewidth=1.4, label="floor: r += lr g", **FLOOR)
    axes.set_xscale("log")
    axes.set_xlabel("density k / n, %")
    axes.set_ylabel("time of a step / time of the floor")
    axes.set_ylim(0, 1.08 * max(row.ratio for row in rows))
    axes.legend(fontsize=9)
    axes.set_title(f"A whole step, n = {power(n)}, fp32, {results.context.get('gpu', '')}", fontsize=11)
    return figure


def draw_peers(results, pyplot):
    """Bars at the largest size that peers were measured at."""
    peers = results.select("peer", density=0.01)
    if not peers:
        return "peers"
    n = max(row.n for row in peers)
    own = [row for family in ("step", "cold") for row in results.select(family, n=n, density=0.01) if row.who in NAMES]
    theirs = sorted((row for row in peers if row.n == n), key=lambda row: row.ms)
    rows = sorted(own, key=lambda row: row.ms) + theirs
    figure, axes = pyplot.subplots(figsize=(9, 0.4 * len(rows) + 1.5))
    bars = axes.barh(range(len(rows)), [row.ms for row in rows], color=["C0"] * len(own) + ["0.6"] * len(theirs))
    axes.bar_label(bars, [f"{row.ms:.3g} ms" for row in rows], fontsize=8, padding=4)
    names = [("gradsieve " if row.family != "peer" else "") + row.who.replace("_", " ") +
             (", no hint" if row.family == "cold" else "") for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15 * max(row.ms for row in rows))
    floors = [row.ms for row in results.rows
              if (row.family, row.who, row.n, row.dtype) == ("floor", "accumulate", n, "fp32")]
    if floors:
        axes.axvline(floors[0], linewidth=1.4, label=f"floor, {floors[0]:.3g} ms", **FLOOR)
        axes.legend(fontsize=9)
    axes.set_xlabel("time of a whole step, ms")
    axes.set_title(f"The same step in other ways, n = {power(n)}, density 1 %, fp32", fontsize=11)
    return figure


def draw(results, folder):
    try:
        import matplotlib
    except ImportError:
        print("gpu_report.py: no pictures, there is no matplotlib")
        return
    matplotlib.use("Agg")  # files only: works without a display
    from matplotlib import pyplot

    for name, make in (("time", draw_time), ("density", draw_density), ("peers", draw_peers)):
        figure = make(results, pyplot)
        if isinstance(figure, str):
            print(f"gpu_report.py: no {name}.png: there are no {figure}")
            continue
        for axes in figure.axes:
            axes.grid(True, which="major", alpha=0.3)
            axes.set_axisbelow(True)
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=130)
        print(f"gpu_report.py: wrote {folder / name}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, nargs="?", help="with core.json and others from bench/gpu.sh")
    parser.add_argument("--fact", action="append", default=[], metavar="NAME=VALUE", help="a line for the report's head")
    parser.add_argument("--predictions", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE")
    chosen = parser.parse_args()
    if chosen.check:
        page = io.StringIO()
        write_predictions(page)
        if page.getvalue() != chosen.check.read_text(encoding="utf-8"):
            sys.exit(f"gpu_report.py: '{chosen.check}' is not what --predictions writes")
    if chosen.predictions:
        with open(chosen.predictions, "w", encoding="utf-8") as out:
            write_predictions(out)
    if not chosen.folder:
        return
    results = Results(chosen.folder)
    with open(chosen.folder / "report.md", "w", encoding="utf-8") as out:
        write_report(results, dict(fact.split("=", 1) for fact in chosen.fact), out)
    print(f"gpu_report.py: wrote {chosen.folder / 'report.md'}")
    draw(results, chosen.folder)
    write_goals(results, sys.stdout)
    for row in results.errors:
        print(f"ERROR: {'/'.join(map(str, row.key))}: {row.error}")
    if any(not row.who.startswith("torch") for row in results.errors):
        sys.exit(1)


if __name__ == "__main__":
    main()
