#!/usr/bin/env python3
"""Draws speed-up over dense against a link's bandwidth, a line a choice, from the CSV file that examples/advise writes."""

import argparse
import csv
import pathlib
import sys

COLUMNS = ["choice", "gbit_per_second", "milliseconds", "speedup"]


def read(path):
    """(bandwidths, speed-ups) by choice, in the file's order."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        sys.exit(f"plot_advise.py: cannot read '{path}': {error.strerror}")
    if not rows or list(rows[0]) != COLUMNS:
        sys.exit(f"plot_advise.py: '{path}' " + ("has other columns than " + ",".join(COLUMNS) if rows else "has no rows"))
    lines = {}
    try:
        for row in rows:
            bandwidths, speedups = lines.setdefault(row["choice"], ([], []))
            bandwidths.append(float(row["gbit_per_second"]))
            speedups.append(float(row["speedup"]))
    except (TypeError, ValueError) as error:
        sys.exit(f"plot_advise.py: '{path}' is damaged: {error}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=pathlib.Path, help="what advise --csv wrote")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="the picture [beside the table, .png]")
    chosen = parser.parse_args()
    lines = read(chosen.table)
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_advise.py: needs matplotlib (Debian and Ubuntu: apt install python3-matplotlib)")
    matplotlib.use("Agg")  # files only: works without a display
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5.2))
    for choice, (bandwidths, speedups) in lines.items():
        axes.plot(bandwidths, speedups, label=choice)
    axes.axhline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("Gbit/s of a link")
    axes.set_ylabel("speed-up over dense")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    picture = chosen.output or chosen.table.with_suffix(".png")
    figure.tight_layout()
    figure.savefig(picture, dpi=120)
    print(f"plot_advise.py: wrote {picture}")


if __name__ == "__main__":
    main()
