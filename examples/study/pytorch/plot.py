#!/usr/bin/env python3
"""Draws training loss against bytes sent and against time, from the CSV file that train.py writes."""

from __future__ import annotations

import argparse
import csv
import itertools
import pathlib
import sys


def matplotlib_is_there() -> bool:
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")  # files only: works without a display
    return True


def smooth(values: list[float], window: int) -> list[float]:
    """Mean of the last `window` values at each place: a batch's loss jumps too much to compare curves."""
    sums = [0.0, *itertools.accumulate(values)]
    return [(sums[i + 1] - sums[max(0, i + 1 - window)]) / min(i + 1, window) for i in range(len(values))]


def draw(curves: dict[str, list[tuple[float, float, float]]], output: pathlib.Path) -> None:
    """`curves`: of each hook loss, bytes and seconds of every step. @throws OSError"""
    from matplotlib import pyplot

    figure, (by_bytes, by_time) = pyplot.subplots(1, 2, figsize=(13, 5.2), sharey=True)
    for i, (hook, steps) in enumerate(curves.items()):
        losses = smooth([loss for loss, _, _ in steps], max(1, len(steps) // 20))
        style = {"color": f"C{i % 10}", "linestyle": ("-", "--", ":", "-.")[i // 10 % 4], "linewidth": 1.3}
        sent = [total / 1e6 for total in itertools.accumulate(each for _, each, _ in steps)]
        by_bytes.plot(sent, losses, **style)
        by_time.plot(list(itertools.accumulate(seconds for _, _, seconds in steps)), losses, label=hook, **style)
    if all(steps and steps[0][1] > 0 for steps in curves.values()):
        by_bytes.set_xscale("log")
    by_bytes.set_xlabel("sent by a rank, MB")
    by_time.set_xlabel("time, s")
    by_bytes.set_ylabel("training loss")
    for axes in (by_bytes, by_time):
        axes.grid(True, which="major", alpha=0.3)
    by_time.legend(fontsize=8, loc="upper right", framealpha=0.9)
    figure.tight_layout()
    figure.savefig(output, dpi=130)
    pyplot.close(figure)


def read(path: pathlib.Path) -> dict[str, list[tuple[float, float, float]]]:
    """What draw() takes, from a CSV file; ends the program with a sentence if it is none."""
    curves: dict[str, list[tuple[float, float, float]]] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                point = (float(row["loss"]), float(row["bytes"]), float(row["seconds"]))
                curves.setdefault(row["hook"], []).append(point)
    except OSError as error:
        sys.exit(f"plot.py: cannot read '{path}': {error.strerror}")
    except (KeyError, TypeError, ValueError) as error:
        sys.exit(f"plot.py: '{path}' is not what train.py --csv writes: {error}")
    if not curves:
        sys.exit(f"plot.py: '{path}' has no rows")
    return curves


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("csv", type=pathlib.Path, help="what train.py --csv wrote")
    reader.add_argument("-o", "--output", type=pathlib.Path, help="picture to write [beside the table]")
    chosen = reader.parse_args()
    curves = read(chosen.csv)
    if not matplotlib_is_there():
        sys.exit("plot.py: needs matplotlib (Debian and Ubuntu: apt install python3-matplotlib)")
    output = chosen.output or chosen.csv.with_suffix(".png")
    try:
        draw(curves, output)
    except (OSError, ValueError) as error:
        sys.exit(f"plot.py: cannot write '{output}': {error}")
    print(f"plot.py: wrote {output}")


if __name__ == "__main__":
    main()
