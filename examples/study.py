#!/usr/bin/env python3
"""Tables (tables.md, one CSV each), pictures and commands.txt of what study.sh has left in a folder: study.py FOLDER

Cells are mean ± standard deviation over seeds, samples or traces (n in the last column). Figures of times are of one machine, whose
worker threads share its cores."""

import collections
import csv
import glob
import json
import math
import pathlib
import re
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

folder = pathlib.Path(sys.argv[1])
document = []

DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (3, 1)))
plt.rcParams.update({"font.size": 10, "axes.titlesize": 11, "axes.grid": True, "grid.alpha": 0.25, "legend.fontsize": 9,
                     "axes.spines.top": False, "axes.spines.right": False})


def rows(pattern):
    """(cell's name, row) of every file that is whole."""
    for path in sorted(glob.glob(str(folder / pattern))):
        name = pathlib.Path(path).name.rsplit(".", 1)[0]
        if (folder / f"{name}.done").exists():
            with open(path, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    yield name, row


def shown(values, digits):
    values = [each for each in values if math.isfinite(each)]
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def middle(values, digits):
    """For figures that other work on the machine disturbs."""
    values = [each for each in values if math.isfinite(each)]
    if not values:
        return "-"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def table(name, title, keys, columns, groups, shown=shown):
    """groups: key -> column -> values, one a seed; columns: (name, digits)."""
    if not groups:
        return
    header = keys + [column for column, _ in columns] + ["n"]
    lines = [list(map(str, key)) + [shown(values[c], d) for c, d in columns]
             + [str(max(len(values[c]) for c, _ in columns))] for key, values in groups.items()]
    with open(folder / f"{name}.table.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header] + lines)
    document.append(f"## {title}\n\n<!-- table {name} -->\n|" + "|".join(header) + "|\n|" + "---|" * len(header) + "\n"
                    + "".join("|" + "|".join(line) + "|\n" for line in lines))


def grouped():
    return collections.defaultdict(lambda: collections.defaultdict(list))


def lines():
    """label -> x -> values."""
    return collections.defaultdict(lambda: collections.defaultdict(list))


def smooth(points, over):
    """Means of windows of so many points."""
    return [(points[i + (min(over, len(points) - i)) // 2][0], statistics.fmean(y for _, y in points[i:i + over]))
            for i in range(0, len(points), over)]


def draw(axes, names, curves, x, y, log="", over=1, marker=None, ylim=None):
    for label, points in curves.items():
        i = names.index(label)
        points = smooth([(at, statistics.fmean(values)) for at, values in sorted(points.items())], over)
        axes.plot(*zip(*points), label=label, color=f"C{i}", linestyle=DASHES[i % len(DASHES)], linewidth=1.8,
                  marker=marker, markersize=4)
    axes.set(xlabel=x, ylabel=y)
    if "x" in log:
        axes.set_xscale("log", base=2)
    if "y" in log:
        axes.set_yscale("log")
    if ylim:
        axes.set_ylim(ylim)


def picture(name, title, panels, sharey=False):
    """panels: (title of the panel, arguments of draw) each. A label has one colour and dash in all of them; the legend
    is below."""
    panels = [(head, arguments) for head, arguments in panels if arguments["curves"]]
    if not panels:
        return
    names = list(dict.fromkeys(label for _, arguments in panels for label in arguments["curves"]))
    figure, axes = plt.subplots(1, len(panels), figsize=(4.8 * len(panels) + 1.4, 4.4), squeeze=False, sharey=sharey)
    labels = {}
    for each, (head, arguments) in zip(axes[0], panels):
        draw(each, names, **arguments)
        each.set_title(head)
        labels.update({label: line for line, label in zip(*each.get_legend_handles_labels())})
    figure.suptitle(title, fontsize=12)
    columns = min(3 * len(panels), len(labels))
    figure.legend(labels.values(), labels.keys(), loc="lower center", ncol=columns, frameon=False, handlelength=3)
    figure.tight_layout(rect=(0, 0.055 * math.ceil(len(labels) / columns) + 0.01, 1, 1))
    figure.savefig(folder / f"{name}.png", dpi=90)
    plt.close(figure)


def by_cell(pattern):
    found = collections.defaultdict(list)
    for cell, row in rows(pattern):
        found[cell].append(row)
    return found


def with_dense(found, key, dense_of=lambda cell: cell):
    """(key, row, points ahead of the dense run with the same seed), which the cell dense_of(cell) has."""
    dense = {(cell, row["workers"]): float(row["test_accuracy"]) for cell, runs in found.items() for row in runs
             if row["recipe"] == "dense"}
    for cell, runs in found.items():
        for row in runs:
            if row["recipe"] != "dense" and (dense_of(cell), row["workers"]) in dense:
                yield key(cell, row), row, 100 * (float(row["test_accuracy"]) - dense[dense_of(cell), row["workers"]])


STAGES = ("accumulate", "partition", "select", "exchange", "apply")


def density():
    groups, times, curves, errors, norms = grouped(), grouped(), lines(), lines(), grouped()
    names = {"radix": "top-k (radix)", "laplacian": "estimate (laplacian)", "fixed_threshold": "hard threshold",
             "radix+cyclic": "CLT-k (cyclic)", "radix+deft": "DEFT"}
    for cell, row in rows("density-*.steps"):
        if row["recipe"] == "dense":
            continue
        if row["recipe"] in names:
            curves[names[row["recipe"]]][int(row["step"])].append(float(row["density_updated"]))
            errors[names[row["recipe"]]][int(row["step"])].append(float(row["residual_norm"]))
        for stage in STAGES:
            norms[row["recipe"], cell][stage].append(1e6 * float(row[f"{stage}_s"]))
    for (recipe, _), stages in norms.items():
        for stage in STAGES:
            times[(recipe,)][f"{stage} us"].append(statistics.median(stages[stage]))
    for key, row, behind in with_dense(by_cell("density-*.csv"), lambda cell, row: (row["recipe"],)):
        group = groups[key]
        group["updated / asked"].append(float(row["buildup"]))
        group["points over dense"].append(behind)
        group["sent kB"].append(float(row["bytes_per_step"]) / 1e3)
        group["received kB"].append(float(row["received_per_step"]) / 1e3)
    table("density", "Density, 8 workers, 1 %", ["recipe"],
          [("updated / asked", 2), ("points over dense", 2), ("sent kB", 1), ("received kB", 1)], groups)
    table("breakdown", "Where a step's time goes, 8 workers, 1 %: medians of steps, mean of ranks, on two cores",
          ["recipe"], [(f"{stage} us", 0) for stage in STAGES], times)
    picture("density", "8 workers, 1 % asked: what gets into the update",
            [("density of the update",
              {"curves": curves, "x": "step", "y": "share of all elements", "log": "y", "over": 10}),
             ("norm of what was not sent, mean of ranks",
              {"curves": errors, "x": "step", "y": "L2 norm", "log": "y", "over": 10})])


def selection():
    groups, curves, shares = grouped(), lines(), lines()
    for kind in ("csv", "steps"):
        for cell, row in rows(f"selection-*.{kind}"):
            sharing, seed = re.match(r"selection-(by_\w+?)-(\w+)", cell).groups()
            if row["recipe"] == "radix":
                if sharing == "by_fragment":
                    continue
                sharing = "-"
            key = row["recipe"], sharing, int(row["workers"])
            if kind == "steps":
                groups[key].setdefault("all select", []).append(1e6 * float(row["select_s"]))
                groups[key].setdefault("all partition", []).append(1e6 * float(row["partition_s"]))
            elif seed != "many":
                groups[key]["accuracy %"].append(100 * float(row["test_accuracy"]))
    for key, group in groups.items():
        if group["all select"]:
            group["select us, median"] = [statistics.median(group["all select"])]
            group["partition us, median"] = [statistics.median(group["all partition"])]
            name = "top-k" if key[0] == "radix" else "DEFT, k " + key[1].replace("_", " ")
            curves[name][key[2]].append(group["select us, median"][0])
            if key[0] != "radix":
                shares[name][key[2]].append(group["partition us, median"][0])
    table("selection", "Selection and accuracy by workers, 1 % (32 and 64: 20 steps, for the times alone)",
          ["recipe", "sharing", "workers"],
          [("accuracy %", 2), ("select us, median", 1), ("partition us, median", 1)], dict(sorted(groups.items())))
    picture("selection", "DEFT on threads that share two cores: medians of steps, mean of ranks",
            [("selection", {"curves": curves, "x": "workers", "y": "us", "log": "xy", "marker": "o"}),
             ("norms before it, waiting included",
              {"curves": shares, "x": "workers", "y": "us", "log": "xy", "marker": "o"})])


def when_of(step, last):
    return "first tenth" if step <= last / 10 else "last tenth" if step >= last * 0.9 else None


def kinds():
    groups, nearer = grouped(), collections.defaultdict(list)
    last = max((int(row["step"]) for _, row in rows("kinds-*.accumulators")), default=0)
    for cell, row in rows("kinds-*.accumulators"):
        if when := when_of(int(row["step"]), last):
            key = cell.removeprefix("kinds-").rpartition("-")[0], when
            if row["layer"] == "all":
                groups[key]["to Laplace"].append(float(row["emd_laplace"]))
                groups[key]["to Gauss"].append(float(row["emd_gauss"]))
            elif row["layer"].endswith(".weight"):
                nearer[key].append(float(row["emd_laplace"]) < float(row["emd_gauss"]))
    for key, votes in nearer.items():
        groups[key]["weights nearer to Laplace %"] = [100 * statistics.fmean(votes)]
    table("kinds", "The same distances in other networks on MNIST (name: widths of the hidden layers; deep: six of 64), whole "
          "gradient, and the share of weight matrices nearer to Laplace (n: samples)", ["network", "when"],
          [("to Laplace", 3), ("to Gauss", 3), ("weights nearer to Laplace %", 0)], dict(sorted(groups.items())))


def laws():
    groups, panels, estimate = grouped(), {"Laplace": lines(), "Gauss": lines()}, grouped()
    last = max((int(row["step"]) for _, row in rows("laws-*.accumulators")), default=0)
    for _, row in rows("laws-*.accumulators"):
        step, name = int(row["step"]), row["layer"]
        if name == "all" or name.endswith(".weight"):
            for law in panels:
                panels[law]["whole gradient" if name == "all" else name][step].append(float(row[f"emd_{law.lower()}"]))
        if when := when_of(step, last):
            group = groups[name, when]
            for column, title in (("emd_laplace", "to Laplace"), ("emd_gauss", "to Gauss"), ("kurtosis", "kurtosis"),
                                  ("above_4", "share above 4")):
                group[title].append(float(row[column]))
            if name == "all":
                for cut in (2, 4, 8):
                    estimate[f"{100 * math.exp(-cut):.2g}", when]["found / asked"].append(
                        float(row[f"above_{cut}"]) / math.exp(-cut))
    table("laws", "Earth mover's distance in mean magnitudes (n: samples; a Laplace law has 0.0183 above 4)",
          ["layer", "when"], [("to Laplace", 3), ("to Gauss", 3), ("kurtosis", 1), ("share above 4", 4)],
          dict(sorted(groups.items())))
    table("closed_form", "Entries that Laplace's closed form finds, with no correction: threshold = mean magnitude * "
          "ln(1 / density), whole gradient", ["density %", "when"], [("found / asked", 2)],
          dict(sorted(estimate.items(), key=lambda each: (-float(each[0][0]), each[0][1]))))
    picture("laws", "Earth mover's distance of accumulators to the fitted law, 4 workers, 1 %",
            [(f"to {law}", {"curves": curves, "x": "step", "y": "mean magnitudes", "ylim": (0, 0.6)})
             for law, curves in panels.items()], sharey=True)


def estimates():
    groups = grouped()
    counts, curves = collections.defaultdict(list), lines()
    for cell, row in rows("estimates-*.steps"):
        if row["recipe"] != "dense":
            density = cell.split("-")[1]
            ratio = float(row["sent"]) / float(row["asked"])
            counts[row["recipe"], density].append(ratio)
            if density == "0.01":
                curves[row["recipe"]][int(row["step"])].append(ratio)
    for key, row, behind in with_dense(by_cell("estimates-*.csv"),
                                       lambda cell, row: (row["recipe"], cell.split("-")[1])):
        group = groups[key]
        of = sorted(counts[key])
        group["sent / k"] = [statistics.fmean(of)]
        group["least"], group["most"] = [of[0]], [of[-1]]
        group["points over dense"].append(behind)
        thresholds = [float(row[f"thresholds_{by}"]) for by in ("estimated", "remembered", "corrected")]
        if sum(thresholds):
            group["estimated %"].append(100 * thresholds[0] / sum(thresholds))
            group["corrected %"].append(100 * thresholds[2] / sum(thresholds))
            group["probes a step"].append(float(row["probes"]) / sum(thresholds))
    table("estimates", "Entries sent over k in all steps, and accuracy: estimated thresholds (ldte as far as "
          "published, sidco, laplacian is ours), bisection (threshold_search), trimmed, sampled (hierarchical), exact (radix); 4 workers",
          ["recipe", "density"],
          [("sent / k", 3), ("least", 2), ("most", 2), ("estimated %", 1), ("corrected %", 1), ("probes a step", 2),
           ("points over dense", 2)], dict(sorted(groups.items(), reverse=True)))
    chosen = {name: curves[name] for name in ("hierarchical", "threshold_search", "ldte", "sidco", "laplacian", "radix")
              if name in curves}
    picture("estimates", "Entries sent over k, 4 workers, 1 %",
            [("mean of 10 steps and of seeds", {"curves": chosen, "x": "step", "y": "entries / k", "over": 10})])


def selectors():
    groups = grouped()
    for key, row, behind in with_dense(by_cell("selectors-*.csv"), lambda cell, row: (row["recipe"], cell.split("-")[1])):
        groups[key]["points over dense"].append(behind)
        groups[key]["final loss"].append(float(row["final_loss"]))
        groups[key]["sent / k"].append(float(row["entries_sent"]) / (cell_elements(row) * float(row["density"])))
    table("selectors", "Selectors on MNIST's test file, 4 workers, 400 steps", ["recipe", "density"],
          [("points over dense", 2), ("final loss", 4), ("sent / k", 2)], dict(sorted(groups.items())))


def cell_elements(row):
    return float(row["dense_bytes_per_step"]) / 4


def learners():
    groups, alike = grouped(), collections.defaultdict(list)

    def of(cell, row):
        parts = cell.split("-")
        return int(parts[1]), row["recipe"], parts[2] if len(parts) == 4 else "-"

    for cell, row in rows("learners-*.accumulators"):
        if row["layer"] == "all":
            alike[of(cell, row), cell].append((float(row["residual_cosine"]), float(row["top_overlap"])))
    for (key, _), pairs in alike.items():
        groups[key]["cosine of memories"].append(statistics.fmean(cosine for cosine, _ in pairs))
        groups[key]["top-k overlap"].append(statistics.fmean(overlap for _, overlap in pairs))
    for key, row, behind in with_dense(by_cell("learners-*.csv"), of,
                                       lambda cell: "-".join([*cell.split("-")[:2], cell.split("-")[-1]])):
        groups[key]["points over dense"].append(behind)
        groups[key]["sent kB"].append(float(row["bytes_per_step"]) / 1e3)
        groups[key]["received kB"].append(float(row["received_per_step"]) / 1e3)
    table("learners", "Few and many learners: MNIST's test file, 1 %, batch 1024, 200 steps; cosine and overlap are means of a "
          "run's samples", ["learners", "recipe", "beta"],
          [("points over dense", 2), ("cosine of memories", 3), ("top-k overlap", 3), ("sent kB", 2), ("received kB", 2)],
          dict(sorted(groups.items())))
    low = grouped()
    for key, row, behind in with_dense(by_cell("low-*.csv") | by_cell("filtered-*.csv"),
                                       lambda cell, row: (float(row["density"]) * 100, row["recipe"]),
                                       lambda cell: f"low-dense-{cell.split('-')[-1]}"):
        dense, sent, received = (float(row[each]) for each in ("dense_bytes_per_step", "bytes_per_step", "received_per_step"))
        low[key]["times fewer bytes sent"] = [dense / sent]
        low[key]["both ways"] = [2 * dense / (sent + received)]
        low[key]["points over dense"].append(behind)
    low = {(f"{density:g}", recipe): low[density, recipe] for density, recipe in sorted(low, reverse=True)}
    table("low", "CLT-k at low densities: MNIST's test file, 8 workers, batch 128, 400 steps; filtered: beta 0.1",
          ["density %", "recipe"],
          [("times fewer bytes sent", 0), ("both ways", 0), ("points over dense", 2)], low)


def novograd():
    grid, chosen, scales = grouped(), grouped(), grouped()
    state = {}
    for cell, row in rows("novograd-*.csv"):
        _, optimiser, batch, _ = cell.split("-")
        grid[optimiser, int(batch)][row["learning-rate"]].append(100 * float(row["test_accuracy"]))
        state[optimiser] = float(row["optimiser_bytes"]) / 1e3
    for (optimiser, batch), accuracies in grid.items():
        means = {rate: statistics.fmean(values) for rate, values in accuracies.items()}
        best = max(means, key=means.get)
        group = chosen[optimiser, batch]
        group["state kB"] = [state[optimiser]]
        group["best rate"] = [float(best)]
        group["accuracy % there"] = accuracies[best]
        for points in (1, 5, 20):
            group[f"rates within {points}"] = [sum(mean >= means[best] - points for mean in means.values())]
    table("novograd", "Optimisers, dense, MNIST's test file, 51,200 samples in all (400 steps of 128, 25 of 2048): the best of nine "
          "rates, how many are within 1, 5 and 20 points of it, and the bytes that the optimiser keeps", ["optimiser", "batch"],
          [("best rate", 3), ("accuracy % there", 2)] + [(f"rates within {points}", 0) for points in (1, 5, 20)]
          + [("state kB", 3)], dict(sorted(chosen.items())))
    rates = sorted({rate for group in grid.values() for rate in group}, key=float)
    table("learning_rates", "Their accuracy % by learning rate", ["optimiser", "batch"], [(rate, 2) for rate in rates],
          dict(sorted(grid.items())))
    for cell, row in rows("initial-*.csv"):
        scales[(cell.split("-")[1],)][row["init-scale"]].append(100 * float(row["test_accuracy"]))
    table("initial", "Their accuracy % by the scale of the first weights, over He's deviation; batch 128, rates 0.03 (sgd), 0.001 "
          "(adam), 0.01 (novograd)", ["optimiser"],
          [(scale, 2) for scale in sorted({each for group in scales.values() for each in group}, key=float)],
          dict(sorted(scales.items())))


def memories():
    groups, panels = grouped(), {"cosine": lines(), "overlap": lines()}
    names = {"radix": "own top-k", "radix+cyclic": "CLT-k", "radix+cyclic+filtered": "CLT-k, filter"}

    def of(cell, row):
        parts = cell.split("-")
        return row["recipe"], int(parts[1]), parts[2] if len(parts) == 4 else "-"

    for cell, row in rows("memories-*-*.accumulators"):
        if row["layer"] == "all":
            recipe, batch, beta = key = of(cell, row)
            groups[key]["cosine of memories"].append(float(row["residual_cosine"]))
            groups[key]["top-k overlap"].append(float(row["top_overlap"]))
            if batch == 1024 and beta in ("-", "0.1", "0.5"):
                label = names[recipe] + ("" if beta == "-" else f" {beta}")
                panels["cosine"][label][int(row["step"])].append(float(row["residual_cosine"]))
                panels["overlap"][label][int(row["step"])].append(float(row["top_overlap"]))
    for key, _, behind in with_dense(by_cell("memories-*-*.csv"), of,
                                     lambda cell: "-".join([*cell.split("-")[:2], cell.split("-")[-1]])):
        groups[key]["points over dense"].append(behind)
        groups[key]["seeds"] = [len(groups[key]["points over dense"])]
    table("memories", "Likeness of 8 ranks' memories, 1 % (n: samples)", ["recipe", "batch", "beta"],
          [("cosine of memories", 3), ("top-k overlap", 3), ("points over dense", 2), ("seeds", 0)],
          dict(sorted(groups.items())))
    panels = {name: {label: curves[label] for label in ("own top-k", "CLT-k", "CLT-k, filter 0.5", "CLT-k, filter 0.1")
                     if label in curves} for name, curves in panels.items()}
    picture("memories", "8 ranks, batch 1024, 1 %; filter with its beta",
            [("cosine of the ranks' memories", {"curves": panels["cosine"], "x": "step", "y": "mean of pairs"}),
             ("overlap of their top-k", {"curves": panels["overlap"], "x": "step", "y": "share of k"})])
    traffic = grouped()
    for _, row in rows("memories-bytes.csv"):
        group = traffic[row["recipe"], int(row["workers"])]
        group["sent kB"].append(float(row["bytes_per_step"]) / 1e3)
        group["received kB"].append(float(row["received_per_step"]) / 1e3)
    table("traffic", "Traffic by workers, 1 %", ["recipe", "workers"], [("sent kB", 2), ("received kB", 2)], traffic)


def bins():
    groups, curves = grouped(), lines()
    for key, row, behind in with_dense(by_cell("bins-*.csv"), lambda cell, row: tuple(cell.split("-")[1:5])):
        groups[key]["rate, all steps"].append(float(row["dense_bytes_per_step"]) / float(row["bytes_per_step"]))
        groups[key]["points over dense"].append(behind)
    for cell, row in rows("bins-*.steps"):
        optimiser, learners, length, batch = cell.split("-")[1:5]
        if row["recipe"] == "adacomp" and learners == "8" and length == "500":
            rate = 4 * float(row["elements"]) / float(row["bytes_sent"])
            curves[optimiser if batch == "128" else f"{optimiser}, batch {batch}"][int(row["step"])].append(rate)
    table("bins", "AdaComp in fully connected layers: dense bytes over bytes sent, every byte of a message counted",
          ["optimiser", "learners", "bins of", "batch"], [("rate, all steps", 1), ("points over dense", 2)],
          dict(sorted(groups.items(), key=lambda each: (each[0][0], *map(int, each[0][1:])))))
    picture("bins", "AdaComp, bins of 500, 8 learners: dense bytes over bytes sent",
            [("mean of 10 steps and of seeds; batch 128 where not said",
              {"curves": curves, "x": "step", "y": "rate", "over": 10})])


def unpleasant():
    groups = grouped()
    for key, row, behind in with_dense(by_cell("unpleasant-*.csv"),
                                       lambda cell, row: (row["recipe"], cell.split("-")[1], int(row["workers"]))):
        groups[key]["points over dense"].append(behind)
        groups[key]["of dense bytes %"].append(100 * float(row["bytes_per_step"]) / float(row["dense_bytes_per_step"]))
    table("unpleasant", "Where compression fails: MNIST's test file, 400 steps", ["recipe", "density", "workers"],
          [("points over dense", 2), ("of dense bytes %", 2)], dict(sorted(groups.items())))


def forms():
    groups = grouped()
    names = {"radix+deft": "deft by default", "radix": "top-k, gathers", "radix+index_union": "top-k, sums at the union"}
    for key, row, behind in with_dense(by_cell("forms-*.csv"), lambda cell, row: (
            "deft as published" if "published" in cell else names[row["recipe"]], cell.split("-")[2], int(row["workers"])),
            lambda cell: cell.replace("published", "default")):
        groups[key]["points over dense"].append(behind)
        groups[key]["of dense bytes %"].append(100 * float(row["bytes_per_step"]) / float(row["dense_bytes_per_step"]))
        groups[key]["loss"].append(float(row["final_loss"]))
    table("forms", "DEFT's two forms and two kinds of top-k: MNIST's test file, 400 steps",
          ["recipe", "density", "workers"], [("points over dense", 2), ("loss", 4), ("of dense bytes %", 2)],
          dict(sorted(groups.items())))


def equal():
    groups = grouped()
    for key, row, behind in with_dense(by_cell("equal-*.csv"), lambda cell, row: (*cell.split("-")[1:3], row["recipe"]),
                                       lambda cell: f"equal-{cell.split('-')[1]}-dense-{cell.split('-')[-1]}"):
        group = groups[key]
        group["density %"] = [100 * float(row["density"])]
        group["sent kB"].append(float(row["bytes_per_step"]) / 1e3)
        group["received kB"].append(float(row["received_per_step"]) / 1e3)
        group["sent + received kB"].append(group["sent kB"][-1] + group["received kB"][-1])
        group["final loss"].append(float(row["final_loss"]))
        group["points over dense"].append(behind)
    table("equal", "At equal bytes: densities with which 8 workers send and receive as much as radix does at that of "
          "the second column", ["data", "bytes of", "recipe"],
          [("density %", 3), ("sent kB", 2), ("received kB", 2), ("sent + received kB", 2), ("final loss", 4),
           ("points over dense", 2)], dict(sorted(groups.items(), reverse=True)))


def benchmarks(pattern):
    """(family, selector, law, n) -> least us of several runs."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        if not path.with_suffix(".done").exists():
            continue
        for entry in json.loads(path.read_text())["benchmarks"]:
            parts = entry["name"].split("/")
            axes = dict(part.split(":", 1) for part in parts if ":" in part)
            key = parts[0], parts[1], axes["law"], int(axes["n"])
            if not entry.get("error_occurred"):
                found[key] = min(found.get(key, math.inf), 1e3 * float(entry["real_time"]))
    return found


def sizes():
    found = benchmarks("sizes-*.json")
    groups, curves = grouped(), lines()
    order = list(dict.fromkeys((family, who) for family, who, law, _ in found if law == "laplace"))
    ns = sorted({n for *_, n in found})
    for family, who in order:
        for n in ns:
            if (family, who, "laplace", n) in found:
                groups[who, "peer" if family == "peer" else "gradsieve"][f"2^{n.bit_length() - 1}"].append(
                    found[family, who, "laplace", n])
                if who != "laplacian_exact":
                    curves[who.replace("_", " ")][n].append(found[family, who, "laplace", n])
    table("sizes", "Selection alone of 0.1 % of n Laplacian values, us, one thread, least median "
          "of three runs", ["selector", "of"], [(f"2^{n.bit_length() - 1}", 1) for n in ns], groups)
    claims = grouped()
    for law in ("laplace", "ef"):
        for own in ("ldte", "laplacian", "radix", "hierarchical"):
            for peer, claim in (("published_radix", "1.62"), ("published_hierarchical", "1.30")):
                for n in ns:
                    if ("select", own, law, n) in found and ("peer", peer, law, n) in found:
                        claims[law, own, peer][f"2^{n.bit_length() - 1}"].append(
                            found["peer", peer, law, n] / found["select", own, law, n])
    table("speedups", "Times faster than the published radix select and two-level sampling (LDTE-BS: 1.62, 1.30); values "
          "laplace: Laplacian values; ef: an accumulator under error feedback", ["values", "selector", "over"],
          [(f"2^{n.bit_length() - 1}", 2) for n in ns], claims)
    picture("sizes", "Selection of 0.1 % of n Laplacian values, one thread",
            [("least median of three runs; published: our plain code of it",
              {"curves": curves, "x": "n", "y": "us", "log": "xy"})])


def schedules():
    cells = collections.defaultdict(dict)
    for _, row in rows("schedules.csv"):
        cells[row["trace"], row["network"], int(row["workers"])][row["planner"]] = float(row["iteration_ms"])
    groups, panels = grouped(), collections.defaultdict(lines)
    published = {"wfbp": "WFBP", "single": "one group", "fixed_bucket": "PyTorch's 25 MiB",
                 "fusion_buffer": "Horovod's buffer", "free_merge": "ASC-WFBP"}
    for (trace, network, workers), times in cells.items():
        group = groups[network, workers]
        group["over wfbp"].append(times["wfbp"] / times["mgwfbp"])
        group["over single"].append(times["single"] / times["mgwfbp"])
        group["over optimal %"].append(100 * (times["mgwfbp"] / times["optimal"] - 1))
        best = min(times[name] for name in published)
        group["best of published %"].append(100 * float(times["mgwfbp"] <= 1.0001 * best))
        for name, label in published.items():
            panels[network][label][workers].append(times[name] / times["optimal"])
        panels[network]["MG-WFBP"][workers].append(times["mgwfbp"] / times["optimal"])
    table("schedules", "MG-WFBP, simulated: speed-up over WFBP and one group, mean of the traces; share of traces in which "
          "no published peer is faster; iteration above the optimal plan's", ["network", "workers"],
          [("over wfbp", 3), ("over single", 3), ("best of published %", 0), ("over optimal %", 2)], groups)
    picture("schedules", "Simulated iteration over the optimal plan's, mean of ten traces; WFBP's goes on to 10 and more",
            [(network, {"curves": curves, "x": "workers", "y": "times the optimal plan's", "log": "x", "ylim": (0.98, 3)})
             for network, curves in panels.items()])


def published():
    path, cells, eight = folder / "schedules-published.txt", grouped(), grouped()
    text = path.read_text() if (folder / "schedules-published.done").exists() else ""
    number = r"([\d.]+)"
    for model, kind, network, *times in re.findall(
            rf"^(\S+) (fp\d+) (\S+): {number}/{number} {number}/{number} {number}/{number}; {number}", text, re.M):
        wfbp, wfbp_here, single, single_here, ours, ours_here, optimal = map(float, times)
        for column, value in (("wfbp / mgwfbp, measured", wfbp / ours),
                              ("wfbp / mgwfbp, simulated", wfbp_here / ours_here),
                              ("single / mgwfbp, measured", single / ours),
                              ("single / mgwfbp, simulated", single_here / ours_here),
                              ("optimal / mgwfbp, simulated", optimal / ours_here)):
            cells[model, kind, network][column].append(value)
    table("published", "MG-WFBP as its authors measured it on 16 V100 (TPDS 2021), beside the simulation",
          ["model", "format", "network"],
          [("wfbp / mgwfbp, measured", 2), ("wfbp / mgwfbp, simulated", 2), ("single / mgwfbp, measured", 2),
           ("single / mgwfbp, simulated", 2), ("optimal / mgwfbp, simulated", 2)], cells)
    measured = {"googlenet": (1.20, 1.36), "resnet50": (1.22, 1.39)}
    for model, network, factor, *ratios in re.findall(
            rf"^(\w+) on (\S+), interference {number}: wfbp / mgwfbp {number}, single / mgwfbp {number}", text, re.M):
        group = eight[model, network, f"{float(factor):g}"]
        for i, name in enumerate(("wfbp", "single")):
            group[f"{name} / mgwfbp, measured"] = [measured[model][i]]
            group[f"{name} / mgwfbp, simulated"] = [float(ratios[i])]
    table("eight_nodes", "MG-WFBP on 8 K80 nodes (INFOCOM 2019), beside the simulation; factor: by which computation is "
          "slower during a collective", ["model", "network", "factor"],
          [(f"{name} / mgwfbp, {how}", 2) for name in ("wfbp", "single") for how in ("measured", "simulated")], eight)


def links(part="links", title="Plans on links that are limited, C++ over MPI, 2 ranks on two cores, dense: medians of "
                              "iterations, median of the repeats (least to most)"):
    groups = grouped()
    for cell, row in rows(f"{part}-*.csv"):
        group = groups[row["rate"], row["overlap"]]
        group["groups"].append(float(row["groups"]) if row["overlap"] != "none" else math.nan)
        group["measured ms"].append(float(row["median_step_ms"]))
        predicted = float(row["predicted_ms"] or 0)
        group["predicted ms"].append(predicted if predicted > 0 else math.nan)
        group["error %"].append(100 * (predicted / float(row["median_step_ms"]) - 1) if predicted > 0 else math.nan)
    table(part, title, ["link", "plan"],
          [("groups", 0), ("predicted ms", 1), ("measured ms", 1), ("error %", 1)], groups, middle)


def layers():
    links("layers", "The same with the layers' own times: no pause, each rank computes on a core of its own")


def ranks():
    groups = grouped()
    for cell, row in rows("ranks-*.csv"):
        group = groups[int(cell.split("-")[1]), row["overlap"]]
        group["groups"].append(float(row["groups"]))
        group["predicted ms"].append(float(row["predicted_ms"]))
        group["measured ms"].append(float(row["median_step_ms"]))
        group["error %"].append(100 * (group["predicted ms"][-1] / group["measured ms"][-1] - 1))
    table("ranks", "The same with 2, 4 and 8 ranks on two cores, 1 Gbit/s", ["ranks", "plan"],
          [("groups", 0), ("predicted ms", 1), ("measured ms", 1), ("error %", 1)],
          dict(sorted(groups.items())), middle)


def hook():
    groups = grouped()
    for cell, row in rows("hook-*.csv"):
        group = groups[row["rate"], cell.split("-")[1]]
        group["buckets"].append(float(row["buckets"]))
        group["predicted ms"].append(float(row["predicted_ms"]))
        group["measured ms"].append(float(row["measured_ms"]))
        group["error %"].append(100 * (float(row["predicted_ms"]) / float(row["measured_ms"]) - 1))
    table("hook", "Plans through PyTorch's hook, 2 ranks on two cores, all elements sent: medians of iterations, "
          "median of the repeats (least to most); this DDP takes one cap for all buckets, the nearest to the plan",
          ["link", "plan"], [("buckets", 0), ("predicted ms", 1), ("measured ms", 1), ("error %", 1)], groups, middle)


def networks():
    groups, rates, curves = grouped(), grouped(), lines()
    for cell, runs in (by_cell("networks-*.csv") | by_cell("longer-*.csv")).items():
        which, model, optimiser, seed = cell.split("-")
        model += ", 4 times the steps" if which == "longer" else ""
        dense = next(float(row["accuracy"]) for row in runs if row["hook"] == "none")
        for row in runs:
            group = groups[model, optimiser, row["hook"].removeprefix("gradsieve:")]
            group["accuracy %"].append(100 * float(row["accuracy"]))
            if row["hook"] != "none":
                group["points over dense"].append(100 * (float(row["accuracy"]) - dense))
                group["rate, all steps"].append(float(row["dense"]) / float(row["sent"]))
    table("networks", "CNN on MNIST's test file, LSTM on characters, NCF on ratings: two ranks of PyTorch over the hook",
          ["model", "optimiser", "recipe"], [("accuracy %", 2), ("points over dense", 2), ("rate, all steps", 1)],
          dict(sorted(groups.items(), key=lambda each: (each[0][:2], each[0][2] != "none", each[0][2]))))
    for cell, row in rows("rates-*.csv"):
        kind = cell.split("-")[1]
        passed = 4 * float(row["passed"])
        rates[(kind,)]["elements"] = [(float(row["dense"]) - passed) / 4]
        rates[(kind,)]["rate, all steps"].append((float(row["dense"]) - passed) / (float(row["sent"]) - passed))
        steps = [step for _, step in rows(f"{cell}.steps")]
        each = [(float(row["dense"]) - passed) / (float(step["bytes"]) - passed) for step in steps]
        rates[(kind,)]["first step"].append(each[0])
        rates[(kind,)]["last tenth"].append(1 / statistics.fmean(1 / rate for rate in each[-max(1, len(each) // 10):]))
        for step, rate in zip(steps, each):
            curves[kind][int(step["step"])].append(rate)
    table("rates", "AdaComp by kind of layer, all others passing through, SGD (embedding: Adam), two learners: dense over "
          "sent bytes (bins of 50 in convolutions, 500 elsewhere)", ["layers"],
          [("elements", 0), ("first step", 1), ("rate, all steps", 1), ("last tenth", 1)], rates)
    picture("rates", "AdaComp by kind of layer, two learners: dense bytes over bytes sent",
            [("mean of 5 steps and of seeds", {"curves": curves, "x": "step", "y": "rate", "over": 5})])


def distances():
    groups, nearer = grouped(), collections.defaultdict(list)
    last = collections.defaultdict(int)
    for cell, row in rows("*-*-*.shapes"):
        last[cell] = max(last[cell], int(row["step"]))
    for cell, row in rows("*-*-*.shapes"):
        if when := when_of(int(row["step"]), last[cell]):
            key = cell.split("-")[1], row["values"], when
            laplace, gauss = float(row["emd_laplace"]), float(row["emd_gauss"])
            if row["layer"] == "all":
                groups[key]["to Laplace"].append(laplace)
                groups[key]["to Gauss"].append(gauss)
                groups[key]["Laplace / Gauss"].append(laplace / gauss)
            else:
                nearer[key].append(laplace < gauss)
    for key, votes in nearer.items():
        groups[key]["layers nearer to Laplace %"] = [100 * statistics.fmean(votes)]
    table("distances", "The same distances in a CNN, an LSTM and a transformer under top-k of 1 %, two ranks of PyTorch, without "
          "biases and norms (n: samples)", ["network", "values", "when"],
          [("to Laplace", 3), ("to Gauss", 3), ("Laplace / Gauss", 2), ("layers nearer to Laplace %", 0)],
          dict(sorted(groups.items())))


def trailing(losses, over):
    """Means of so many losses, the last of which is that of step 1, 2, ...; infinite before there are so many."""
    return [statistics.fmean(losses[i + 1 - over:i + 1]) if i + 1 >= over else math.inf for i in range(len(losses))]


def times():
    finals, reached = grouped(), grouped()
    for cell, runs in by_cell("times-*.csv").items():
        model = cell.split("-")[1]
        runs = {row["hook"].removeprefix("gradsieve:"): row for row in runs}
        steps, parts = collections.defaultdict(list), collections.defaultdict(list)
        for kind, of in (("steps", steps), ("trace", parts)):
            for _, row in rows(f"{cell}.{kind}"):
                of[row["hook"].removeprefix("gradsieve:")].append(row)
        over = max(1, len(steps["none"]) // 10)
        means = {name: trailing([float(row["loss"]) for row in of], over) for name, of in steps.items()}
        level = max(of[-1] for name, of in means.items() if name != "none")
        until, seconds = {}, {}
        for name, row in runs.items():
            final, time = finals[model, name], reached[model, name]
            final["accuracy %"].append(100 * float(row["accuracy"]))
            final["test loss"].append(float(row["test_loss"]))
            if name != "none":
                final["points over dense"].append(100 * (float(row["accuracy"]) - float(runs["none"]["accuracy"])))
                passed, kept = float(row["passed"]), parts[name][over:]  # steps in which the density is the last
                final["sent / k"].append(sum(float(each["sent"]) - passed for each in kept)
                                         / sum(float(each["asked"]) - passed for each in kept))
                time["selecting %"].append(100 * statistics.median(float(each["accumulate_s"]) + float(each["select_s"])
                                                                   for each in parts[name]) / 1e-3
                                           / float(row["median_step_ms"]))
            time["ms a step"].append(float(row["median_step_ms"]))
            until[name] = next((i + 1 for i, mean in enumerate(means[name]) if mean <= level), math.nan)
            time["steps to the loss"].append(until[name])
            seconds[name] = until[name] * float(row["median_step_ms"])
            time["loss"].append(level)
            time["step faster than radix"].append(float(runs["radix"]["median_step_ms"]) / float(row["median_step_ms"]))
        for name in runs:
            for peer in ("radix", "hierarchical"):
                if peer in runs:
                    reached[model, name][f"times faster than {peer}"].append(seconds[peer] / seconds[name])
    names = "a CNN on MNIST's test file, an LSTM and a transformer on characters: two ranks of PyTorch, 1 %, SGD"
    table("finals", f"Selectors on {names}", ["network", "recipe"],
          [("accuracy %", 2), ("points over dense", 2), ("test loss", 4), ("sent / k", 2)], dict(sorted(finals.items())))
    table("times", "Their time to the highest of the five selectors' final training losses (mean of a tenth of the steps): steps to it "
          "times the median step, all taking each step in turn; selecting: share of a step that accumulates and selects",
          ["network", "recipe"],
          [("loss", 3), ("steps to the loss", 0), ("ms a step", 2), ("step faster than radix", 3), ("selecting %", 1),
           ("times faster than radix", 3), ("times faster than hierarchical", 3)], dict(sorted(reached.items())))


def peers():
    found, groups = benchmarks("peers-*.json"), grouped()
    for (family, who, law, n), us in found.items():
        groups[who, "peer" if family == "peer" else "gradsieve"][f"{n}"].append(us / 1e3)
    table("peers", "Selection alone of 1 % of an accumulator under error feedback, of as many elements as the LSTM, the transformer "
          "and the CNN select from; ms, one thread, least median of three runs", ["selector", "of"],
          [(f"{n}", 2) for n in sorted({n for *_, n in found})], groups)


def codec():
    groups = grouped()
    for _, row in rows("codec.txt"):
        group = groups[(row["values"],)]
        group["bytes"].append(float(row["bytes"]))
        group["final loss"].append(float(row["loss"]))
        group["squares lost %"].append(100 * float(row["lost"]))
    table("codec", "A learned value codec: softmax regression on the digits, 4 workers, 10 %", ["values"],
          [("bytes", 0), ("final loss", 4), ("squares lost %", 2)], groups)


for part in (density, selection, laws, kinds, estimates, selectors, memories, learners, bins, novograd, unpleasant, forms,
             equal, sizes, schedules, published, links, layers, ranks, hook, networks, distances, times, peers, codec):
    part()
(folder / "tables.md").write_text("\n".join(document))
(folder / "commands.txt").write_text("".join(path.read_text() for path in sorted(folder.glob("*.command"))
                                             if path.with_suffix(".done").exists()))
print("Tables that go to examples/study: then run examples/study/figures.py --write --made TABLE=COMMIT")
print(f"wrote {folder}/tables.md and {len(list(folder.glob('*.png')))} pictures")
