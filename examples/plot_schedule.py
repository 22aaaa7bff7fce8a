#!/usr/bin/env python3
"""Draws efficiency and exposed communication against workers, a line a planner, a picture a trace and network, from
the CSV file that examples/simulate writes."""

import argparse
import csv
import pathlib
import re
import sys

COLUMNS = ["trace", "network", "workers", "planner", "groups", "iteration_ms", "exposed_ms", "speedup", "efficiency"]


def read(path):
    """Rows by trace and network, then by planner, as (workers, exposed ms, efficiency)."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        sys.exit(f"plot_schedule.py: cannot read '{path}': {error.strerror}")
    if not rows or list(rows[0]) != COLUMNS:
        sys.exit(f"plot_schedule.py: '{path}' " + ("has other columns than " + ",".join(COLUMNS) if rows else "has no rows"))
    pictures = {}
    try:
        for row in rows:
            lines = pictures.setdefault((row["trace"], row["network"]), {})
            lines.setdefault(row["planner"], []).append(
                (int(row["workers"]), float(row["exposed_ms"]), float(row["efficiency"])))
    except (TypeError, ValueError) as error:
        sys.exit(f"plot_schedule.py: '{path}' is damaged: {error}")
    return pictures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=pathlib.Path, help="what simulate --csv wrote")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="folder for the PNG files [beside the table]")
    chosen = parser.parse_args()
    pictures = read(chosen.table)

    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_schedule.py: needs matplotlib (Debian and Ubuntu: apt install python3-matplotlib)")
    matplotlib.use("Agg")  # files only: works without a display
    from matplotlib import pyplot

    folder = chosen.output or chosen.table.parent
    for (trace, network), lines in pictures.items():
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.2))
        for i, (planner, points) in enumerate(lines.items()):
            style = {"color": f"C{i % 10}", "marker": "os^Dv<>PX*"[i % 10], "markersize": 5, "label": planner,
                     "linewidth": 2.2 if planner == "optimal" else 1.2}
            workers, exposed, efficiency = zip(*sorted(points))
            left.plot(workers, efficiency, **style)
            right.plot(workers, exposed, **style)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xlabel("workers")
            axes.grid(True, which="major", alpha=0.3)
        left.set_ylim(0, 1.03)
        left.set_ylabel("efficiency")
        right.set_yscale("symlog", linthresh=1)
        right.set_ylim(bottom=0)
        right.set_ylabel("exposed communication, ms an iteration")
        left.legend(fontsize=8)
        figure.suptitle(f"{trace} on {network}")
        figure.tight_layout()
        output = folder / (re.sub(r"[^A-Za-z0-9._-]+", "_", f"schedule_{trace}_{network}") + ".png")
        try:
            figure.savefig(output, dpi=110)
        except OSError as error:
            sys.exit(f"plot_schedule.py: cannot write '{output}': {error.strerror}")
        pyplot.close(figure)
        print(f"plot_schedule.py: wrote {output}")


if __name__ == "__main__":
    main()
