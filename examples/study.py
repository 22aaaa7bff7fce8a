#!/usr/bin/env python3
"""Tables (tables.md, one CSV each) and pictures of what study.sh has left in a folder: study.py FOLDER

Cells are mean ± standard deviation over seeds (n in the last column). Figures of times are of one machine, whose worker
threads share its cores."""

import collections
import csv
import glob
import pathlib
import re
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

folder = pathlib.Path(sys.argv[1])
document = []


def rows(pattern):
    """(cell's name, row) of every file that is whole."""
    for path in sorted(glob.glob(str(folder / pattern))):
        name = pathlib.Path(path).name.rsplit(".", 1)[0]
        if (folder / f"{name}.done").exists():
            with open(path, newline="") as file:
                for row in csv.DictReader(file):
                    yield name, row


def shown(values, digits):
    mean = statistics.fmean(values)
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean:.{digits}f}{spread}"


def table(name, title, keys, columns, groups):
    """groups: key -> column -> values, one a seed; columns: (name, digits)."""
    if not groups:
        return
    header = keys + [column for column, _ in columns] + ["n"]
    lines = [list(map(str, key)) + [shown(values[c], d) if values[c] else "-" for c, d in columns]
             + [str(max(len(values[c]) for c, _ in columns))] for key, values in groups.items()]
    with open(folder / f"{name}.table.csv", "w", newline="") as file:
        csv.writer(file).writerows([header] + lines)
    document.append(f"## {title}\n\n|" + "|".join(header) + "|\n|" + "---|" * len(header) + "\n"
                    + "".join("|" + "|".join(line) + "|\n" for line in lines))


def grouped():
    return collections.defaultdict(lambda: collections.defaultdict(list))


def picture(name, title, x, y, lines, log=""):
    if not lines:
        return
    figure, axes = plt.subplots(figsize=(5, 3.2))
    for label, points in lines.items():
        points = sorted(points.items())
        axes.plot([at for at, _ in points], [statistics.fmean(values) for _, values in points], label=label, linewidth=1)
    axes.set(title=title, xlabel=x, ylabel=y)
    if "x" in log:
        axes.set_xscale("log", base=2)
    if "y" in log:
        axes.set_yscale("log")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=80)
    plt.close(figure)


def lines():
    return collections.defaultdict(lambda: collections.defaultdict(list))


def with_dense(found, key):
    """Adds points behind the dense run of the same command."""
    for cell, runs in found.items():
        dense = {row["workers"]: float(row["test_accuracy"]) for row in runs if row["recipe"] == "dense"}
        for row in runs:
            if row["recipe"] != "dense" and row["workers"] in dense:
                yield key(cell, row), row, 100 * (float(row["test_accuracy"]) - dense[row["workers"]])


def by_cell(pattern):
    found = collections.defaultdict(list)
    for cell, row in rows(pattern):
        found[cell].append(row)
    return found


def density():
    groups, curves, errors = grouped(), lines(), lines()
    for _, row in rows("density-*.steps"):
        if row["recipe"] != "dense":
            curves[row["recipe"]][int(row["step"])].append(float(row["density_updated"]))
            errors[row["recipe"]][int(row["step"])].append(float(row["residual_norm"]))
    for key, row, behind in with_dense(by_cell("density-*.csv"), lambda cell, row: (row["recipe"],)):
        group = groups[key]
        group["updated / asked"].append(float(row["buildup"]))
        group["points behind dense"].append(behind)
        group["sent kB"].append(float(row["bytes_per_step"]) / 1e3)
        group["received kB"].append(float(row["received_per_step"]) / 1e3)
        group["select ms"].append(float(row["select_ms"]))
        group["exchange ms"].append(float(row["exchange_ms"]))
    table("density", "Density, 8 workers, 1 %", ["recipe"],
          [("updated / asked", 2), ("points behind dense", 2), ("sent kB", 1), ("received kB", 1), ("select ms", 3),
           ("exchange ms", 3)], groups)
    picture("density", "density of the update (1 % asked, 8 workers)", "step", "density", curves, "y")
    picture("error", "norm of the residual, mean of ranks", "step", "L2 norm", errors)


def selection():
    groups, curves = grouped(), lines()
    for cell, row in rows("selection-*.csv"):
        sharing = re.match(r"selection-(by_\w+)-", cell)[1]
        if row["recipe"] == "radix":
            if sharing == "by_fragment":
                continue
            sharing = "-"
        groups[row["recipe"], sharing, int(row["workers"])]["accuracy %"].append(100 * float(row["test_accuracy"]))
    for cell, row in rows("selection-*.steps"):
        sharing = re.match(r"selection-(by_\w+)-", cell)[1]
        if row["recipe"] == "radix":
            if sharing == "by_fragment":
                continue
            sharing = "-"
        key = row["recipe"], sharing, int(row["workers"])
        groups[key].setdefault("all select", []).append(1e6 * float(row["select_s"]))
        groups[key].setdefault("all partition", []).append(1e6 * float(row["partition_s"]))
    for key, group in groups.items():
        if group["all select"]:
            group["select us, median"] = [statistics.median(group["all select"])]
            group["partition us, median"] = [statistics.median(group["all partition"])]
            curves[f"{key[0]} {key[1]}"][key[2]].append(group["select us, median"][0])
    table("selection", "Selection and accuracy by workers, 1 %", ["recipe", "sharing", "workers"],
          [("accuracy %", 2), ("select us, median", 1), ("partition us, median", 1)],
          dict(sorted(groups.items())))
    picture("selection", "selection (median of steps, mean of ranks)", "workers", "us", curves, "xy")


def laws():
    groups, curves = grouped(), lines()
    last = max((int(row["step"]) for _, row in rows("laws-*.accumulators")), default=0)
    for _, row in rows("laws-*.accumulators"):
        step = int(row["step"])
        name = row["layer"]
        when = "first tenth" if step <= last / 10 else "last tenth" if step >= last * 0.9 else None
        if name == "all" or name.endswith(".weight"):
            curves[f"{name}: Laplace"][step].append(float(row["emd_laplace"]))
            curves[f"{name}: Gauss"][step].append(float(row["emd_gauss"]))
        if when:
            group = groups[name, when]
            for column, title in (("emd_laplace", "to Laplace"), ("emd_gauss", "to Gauss"), ("kurtosis", "kurtosis"),
                                  ("above_4", "share above 4")):
                group[title].append(float(row[column]))
    table("laws", "Earth mover's distance in mean magnitudes (samples of three seeds; a Laplace law has 0.0183 above 4)",
          ["layer", "when"], [("to Laplace", 3), ("to Gauss", 3), ("kurtosis", 1), ("share above 4", 4)],
          dict(sorted(groups.items())))
    picture("laws", "distance to the fitted law", "step", "mean magnitudes", curves, "y")


def memories():
    groups, curves = grouped(), lines()
    for cell, row in rows("memories-*-*.accumulators"):
        if row["layer"] == "all":
            batch = cell.split("-")[1]
            curves[f"{row['recipe']}, batch {batch}: cosine"][int(row["step"])].append(float(row["residual_cosine"]))
            curves[f"{row['recipe']}, batch {batch}: overlap"][int(row["step"])].append(float(row["top_overlap"]))
            group = groups[row["recipe"], int(batch)]
            group["cosine of residuals"].append(float(row["residual_cosine"]))
            group["top-k overlap"].append(float(row["top_overlap"]))
    for key, _, behind in with_dense(by_cell("memories-*-*.csv"),
                                     lambda cell, row: (row["recipe"], int(cell.split("-")[1]))):
        groups[key]["points behind dense"].append(behind)
    table("memories", "Likeness of 8 ranks' residuals, 1 % (n counts samples and seeds)", ["recipe", "batch"],
          [("cosine of residuals", 3), ("top-k overlap", 3), ("points behind dense", 2)], dict(sorted(groups.items())))
    picture("memories", "likeness of residuals and of top-k", "step", "", curves)
    traffic = grouped()
    for _, row in rows("memories-bytes.csv"):
        group = traffic[row["recipe"], int(row["workers"])]
        group["sent kB"].append(float(row["bytes_per_step"]) / 1e3)
        group["received kB"].append(float(row["received_per_step"]) / 1e3)
    table("traffic", "Traffic by workers, 1 %", ["recipe", "workers"], [("sent kB", 2), ("received kB", 2)], traffic)


def bins():
    groups = grouped()
    for key, row, behind in with_dense(by_cell("bins-*.csv"),
                                       lambda cell, row: tuple(cell.split("-")[1:4])):
        groups[key]["rate, all steps"].append(float(row["dense_bytes_per_step"]) / float(row["bytes_per_step"]))
        groups[key]["points behind dense"].append(behind)
    table("bins", "AdaComp: bytes saved, every byte of a message counted", ["optimiser", "learners", "bins of"],
          [("rate, all steps", 1), ("points behind dense", 2)], groups)


def unpleasant():
    groups = grouped()
    for key, row, behind in with_dense(by_cell("unpleasant-*.csv"),
                                       lambda cell, row: (row["recipe"], cell.split("-")[1], int(row["workers"]))):
        groups[key]["points behind dense"].append(behind)
        groups[key]["of dense bytes %"].append(100 * float(row["bytes_per_step"]) / float(row["dense_bytes_per_step"]))
    table("unpleasant", "MNIST's test file", ["recipe", "density", "workers"],
          [("points behind dense", 2), ("of dense bytes %", 2)], dict(sorted(groups.items())))


def schedules():
    cells = collections.defaultdict(dict)
    for _, row in rows("schedules.csv"):
        cells[row["trace"], row["network"], int(row["workers"])][row["planner"]] = float(row["iteration_ms"])
    groups = grouped()
    for (trace, network, workers), times in cells.items():
        group = groups[network, workers]
        group["over wfbp"].append(times["wfbp"] / times["mgwfbp"])
        group["over single"].append(times["single"] / times["mgwfbp"])
        group["over optimal %"].append(100 * (times["mgwfbp"] / times["optimal"] - 1))
        group["best of published"].append(float(times["mgwfbp"] <= 1.0001 * min(
            times[name] for name in ("wfbp", "single", "fixed_bucket", "fusion_buffer", "free_merge"))))
    table("schedules", "MG-WFBP, simulated: speed-up over WFBP and one group, mean of the traces; share of traces in which "
          "no published peer is faster; iteration above the optimal plan's", ["network", "workers"],
          [("over wfbp", 3), ("over single", 3), ("best of published", 2), ("over optimal %", 2)], groups)


for part in (density, selection, laws, memories, bins, unpleasant, schedules):
    part()
(folder / "tables.md").write_text("\n".join(document))
print(f"wrote {folder}/tables.md and {len(list(folder.glob('*.png')))} pictures")
