#!/usr/bin/env python3
"""Draws what examples/train compared, a small picture a recipe: training loss against bytes sent, beside dense training;
the accuracy in the end, and how many times fewer bytes that took."""

import argparse
import csv
import math
import pathlib
import sys

COLUMNS = {
    "train": ["recipe", "workers", "density", "steps", "final_loss", "test_accuracy", "bytes_per_step",
              "dense_bytes_per_step"],
    "curves": ["recipe", "workers", "loss", "bytes"],
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


def families(results):
    """The compressed recipes, and for each the dense run with as many workers, if there is one."""
    dense = {row["workers"]: row for row in results if row["recipe"] == "dense"}
    shown = [row for row in results if row["recipe"] != "dense"] or results
    return [(row, dense.get(row["workers"])) for row in shown]


def draw_panel(axes, row, dense, curves, several):
    """One recipe: training loss against what a worker has sent so far, beside dense training."""
    for each, color, dash in ((dense, "0.35", (0, (5, 2))), (row, "C0", "-")):
        if each is None or (each is row and color != "C0"):  # dense, where there is nothing else
            continue
        points = curves.get((each["recipe"], each["workers"]), [])
        points = [point for point in points if point["bytes"] > 0]
        losses = smooth([point["loss"] for point in points], max(1, len(points) // 20))
        axes.plot([point["bytes"] / 1e6 for point in points], losses, color=color, linestyle=dash, linewidth=1.6)
        axes.plot([each["steps"] * each["bytes_per_step"] / 1e6], [each["final_loss"]], marker="o", linestyle="",
                  markersize=5, color=color)
    name = row["recipe"] + (f", P = {row['workers']:.0f}" if several else "")
    end = f"accuracy {100 * row['test_accuracy']:.1f} %"
    if row["recipe"] != "dense" and row["bytes_per_step"] > 0:
        end += f", sends 1 / {row['dense_bytes_per_step'] / row['bytes_per_step']:.0f}"
    axes.set_title(f"{name}\n{end}", fontsize=9.5)
    axes.grid(True, which="major", alpha=0.3)


def settings(results):
    """What all rows have in common, as a line below the title."""
    def common(name, text):
        values = sorted({row[name] for row in results})
        return text.format(values[0]) if len(values) == 1 else ""
    compressed = [row for row in results if row["recipe"] != "dense"] or results
    density = sorted({row["density"] for row in compressed if row["density"] < 1})
    dense = [row for row in results if row["recipe"] == "dense"]
    return ", ".join(part for part in (
        common("workers", "{:.0f} workers"), common("steps", "{:.0f} steps"),
        f"{results[0]['dense_bytes_per_step'] / 4:,.0f} parameters",
        f"density {100 * density[0]:g} %" if len(density) == 1 else "",
        f"dense ends at {100 * dense[0]['test_accuracy']:.1f} % test accuracy" if len(dense) == 1 else "") if part)


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
    panels = families(results)
    columns = min(len(panels), 3 if len(panels) <= 6 else 5)
    lines = math.ceil(len(panels) / columns)
    figure, grid = pyplot.subplots(lines, columns, figsize=(max(6.5, 2.75 * columns), 1.3 + 2.45 * lines), sharex=True,
                                   sharey=True, squeeze=False)
    for axes, (row, dense) in zip(grid.flat, panels):
        draw_panel(axes, row, dense, curves, several)
    for axes in list(grid.flat)[len(panels):]:
        axes.set_visible(False)
    if all(row["bytes_per_step"] > 0 for row in results):
        grid[0, 0].set_xscale("log")
    grid[0, 0].set_yscale("log")
    for i, axes in enumerate(grid.flat):
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:g}")
        if i + columns >= len(panels):  # nothing is shown below
            axes.tick_params(labelbottom=True)
    def inches(down):
        return 1 - down / figure.get_figheight()

    figure.supxlabel("sent by a worker so far, MB", fontsize=11)
    figure.supylabel("training loss", fontsize=11)
    figure.text(0.5, inches(0.12), "Training with compressed gradients", ha="center", va="top", fontsize=14)
    figure.text(0.5, inches(0.42), settings(results), ha="center", va="top", fontsize=10, color="0.3")
    keys = [pyplot.Line2D([], [], color="C0", linewidth=1.6, marker="o", markersize=5)]
    names = ["the recipe, and the share of dense's bytes that it sends"]
    if any(dense is not None and dense is not row for row, dense in panels):
        keys.append(pyplot.Line2D([], [], color="0.35", linewidth=1.6, linestyle=(0, (5, 2)), marker="o", markersize=5))
        names.append("dense")
    figure.legend(keys, names, loc="upper center", ncol=2, fontsize=9.5, frameon=False,
                  bbox_to_anchor=(0.5, inches(0.6)))
    figure.tight_layout(rect=(0, 0, 1, inches(0.85)))

    output = chosen.output or chosen.table.with_suffix(".png")
    try:
        figure.savefig(output, dpi=130)
    except OSError as error:
        sys.exit(f"plot.py: cannot write '{output}': {error.strerror}")
    print(f"plot.py: wrote {output}")


if __name__ == "__main__":
    main()
