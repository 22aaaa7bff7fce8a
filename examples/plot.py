#!/usr/bin/env python3
"""Draws training loss against bytes sent and against time, from the CSV files that examples/train writes."""

import argparse
import csv
import math
import pathlib
import sys

COLUMNS = {
    "train": ["recipe", "workers", "steps", "final_loss", "bytes_per_step", "step_ms"],
    "curves": ["recipe", "workers", "loss", "bytes", "seconds"],
}


def number(text):
    return math.nan if text == "-" else float(text)


def read(path, kind):
    """Rows as dictionaries of the columns that are drawn."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        sys.exit(f"plot.py: cannot read '{path}': {error.strerror}")
    missing = [name for name in COLUMNS[kind] if rows and name not in rows[0]]
    if not rows or missing:
        sys.exit(f"plot.py: '{path}' " + (f"lacks {', '.join(missing)}" if missing else "has no rows"))
    try:
        return [{name: row[name] if name == "recipe" else number(row[name]) for name in COLUMNS[kind]}
                for row in rows]
    except (TypeError, ValueError, AttributeError) as error:
        sys.exit(f"plot.py: '{path}' is damaged: {error}")


def smooth(values, window):
    """Mean of the last `window` values at each place: a batch's loss jumps too much to compare curves."""
    sums, total = [], 0.0
    for i, value in enumerate(values):
        total += value - (values[i - window] if i >= window else 0.0)
        sums.append(total / min(i + 1, window))
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=pathlib.Path, help="what train --csv wrote")
    parser.add_argument("curves", type=pathlib.Path, nargs="?",
                        help="what train --curves wrote; without it: end points only")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="PNG to write [beside the table]")
    chosen = parser.parse_args()

    results = read(chosen.table, "train")
    curves = {}
    for row in read(chosen.curves, "curves") if chosen.curves else []:
        curves.setdefault((row["recipe"], row["workers"]), []).append(row)

    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py: needs matplotlib (Debian and Ubuntu: apt install python3-matplotlib)")
    matplotlib.use("Agg")  # files only: works without a display
    from matplotlib import pyplot

    several = len({row["workers"] for row in results}) > 1
    figure, (by_bytes, by_time) = pyplot.subplots(1, 2, figsize=(13, 5.2), sharey=True)
    for i, row in enumerate(results):
        label = row["recipe"] + (f", P = {row['workers']:.0f}" if several else "")
        style = {"color": f"C{i % 10}", "linestyle": ("-", "--", ":", "-.")[i // 10 % 4]}
        ends = (row["steps"] * row["bytes_per_step"] / 1e6, row["steps"] * row["step_ms"] / 1e3)
        points = curves.get((row["recipe"], row["workers"]), [])
        losses = smooth([p["loss"] for p in points], max(1, len(points) // 20))
        for axes, end, xs in ((by_bytes, ends[0], [p["bytes"] / 1e6 for p in points]),
                              (by_time, ends[1], [p["seconds"] for p in points])):
            axes.plot(xs, losses, linewidth=1.3, **style)
            axes.plot([end], [row["final_loss"]], marker="os^D"[i // 10 % 4], linestyle="",
                      color=style["color"], label=label)

    if all(row["bytes_per_step"] > 0 for row in results):
        by_bytes.set_xscale("log")
    by_bytes.set_yscale("log")
    by_bytes.set_xlabel("sent per worker, MB")
    by_time.set_xlabel("time, s")
    by_bytes.set_ylabel("training loss")
    for axes in (by_bytes, by_time):
        axes.grid(True, which="major", alpha=0.3)
    by_time.legend(fontsize=8, loc="upper right", framealpha=0.9)
    figure.tight_layout()

    output = chosen.output or chosen.table.with_suffix(".png")
    try:
        figure.savefig(output, dpi=130)
    except OSError as error:
        sys.exit(f"plot.py: cannot write '{output}': {error.strerror}")
    print(f"plot.py: wrote {output}")


if __name__ == "__main__":
    main()
