#!/usr/bin/env python3
"""Draws speed-up over dense against a link's bandwidth, a line a choice: what examples/advise predicts (--csv), or
points that it measured beside what it predicted for them (--append)."""

import argparse
import csv
import pathlib
import sys

PREDICTED = ["choice", "gbit_per_second", "milliseconds", "speedup"]
MEASURED = ["choice", "workers", "gbit_per_second", "predicted_ms", "measured_ms"]
STYLES = (("C0", "-", "o"), ("C1", (0, (6, 2)), "s"), ("C2", (0, (1, 1.5)), "^"), ("C3", "-.", "D"),
          ("C4", (0, (8, 2, 1, 2, 1, 2)), "v"), ("C5", (0, (3, 1)), "P"))


def read(path):
    """The rows of a table, and whether its times were measured."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        sys.exit(f"plot_advise.py: cannot read '{path}': {error.strerror}")
    if not rows:
        sys.exit(f"plot_advise.py: '{path}' has no rows")
    if list(rows[0]) not in (PREDICTED, MEASURED):
        sys.exit(f"plot_advise.py: '{path}' has neither the columns {','.join(PREDICTED)} nor {','.join(MEASURED)}")
    numbers = [name for name in rows[0] if name != "choice"]
    try:
        return ([{"choice": row["choice"], **{name: float(row[name]) for name in numbers}} for row in rows],
                "measured_ms" in rows[0])
    except (TypeError, ValueError) as error:
        sys.exit(f"plot_advise.py: '{path}' is damaged: {error}")


def speedups(rows, times):
    """(bandwidths, speed-ups over the dense row of the same bandwidth) by choice, in the table's order. Of several rows
    of a choice and bandwidth the fastest counts: other jobs on a machine only make them slower."""
    found = {}
    for row in rows:
        found.setdefault(row["choice"], {}).setdefault(row["gbit_per_second"], []).append(row[times])
    fastest = {choice: {gbit: min(values) for gbit, values in sorted(by_gbit.items())}
               for choice, by_gbit in found.items()}
    if "dense, 32 bits" not in fastest:
        sys.exit("plot_advise.py: the table has no row 'dense, 32 bits'")
    dense = fastest.pop("dense, 32 bits")
    if any(gbit not in dense for by_gbit in fastest.values() for gbit in by_gbit):
        sys.exit("plot_advise.py: the table has a bandwidth without a row 'dense, 32 bits'")
    return {choice: (list(by_gbit), [dense[gbit] / by_gbit[gbit] for gbit in by_gbit])
            for choice, by_gbit in fastest.items()}


def bandwidth(gbit):
    return f"{gbit:g} Gbit/s" if gbit >= 1 else f"{1e3 * gbit:g} Mbit/s"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=pathlib.Path, help="what advise --csv or --append wrote")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="the picture [beside the table, .png]")
    parser.add_argument("--title", default="Speed-up of one gradient exchange over a dense all-reduce in 32 bits")
    parser.add_argument("--measured-only", action="store_true", help="leaves out what was predicted for measured points")
    parser.add_argument("--note", default="", help="a line below the title: what was run")
    chosen = parser.parse_args()
    rows, measured = read(chosen.table)
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_advise.py: needs matplotlib (Debian and Ubuntu: apt install python3-matplotlib)")
    matplotlib.use("Agg")  # files only: works without a display
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.2))
    lines = speedups(rows, "measured_ms" if measured else "milliseconds")
    expected = speedups(rows, "predicted_ms") if measured and not chosen.measured_only else {}
    if len(lines) > len(STYLES):
        sys.exit(f"plot_advise.py: {len(lines)} choices; {len(STYLES)} can be told apart")
    for (choice, (xs, ys)), (color, dash, marker) in zip(lines.items(), STYLES):
        if measured:
            axes.plot(xs, ys, color=color, linestyle=dash, marker=marker, markersize=6, linewidth=1.8, label=choice)
            if expected:
                axes.plot(*expected[choice], color=color, linewidth=0.9, alpha=0.55)
        else:
            axes.plot(xs, ys, color=color, linestyle=dash, linewidth=1.8, label=choice)
    axes.axhline(1, color="0.35", linewidth=1.2)
    axes.text(0.99, 1, "as fast as dense", transform=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=9,
              color="0.35")
    if expected:
        axes.plot([], [], color="0.4", linewidth=0.9, label="thin: predicted by advise")
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_yticks([tick for e in range(-4, 5) for s in (1, 2, 5) if low <= (tick := s * 10.0**e) <= high])
    axes.set_yticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:g} ×")
    if measured:
        axes.set_xticks(sorted({x for xs, _ in lines.values() for x in xs}))
        axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda x, _: bandwidth(x))
    axes.set_xlabel("bandwidth of a link, each way")
    axes.set_ylabel("speed-up over dense")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=9.5, loc="lower left")
    figure.suptitle(chosen.title, fontsize=13)
    axes.set_title(chosen.note, fontsize=9.5, color="0.3")
    picture = chosen.output or chosen.table.with_suffix(".png")
    figure.tight_layout()
    try:
        figure.savefig(picture, dpi=120)
    except OSError as error:
        sys.exit(f"plot_advise.py: cannot write '{picture}': {error.strerror}")
    print(f"plot_advise.py: wrote {picture}")


if __name__ == "__main__":
    main()
