#!/usr/bin/env python3
"""The table and the picture of what simulated_ranks.py has written: plot_ranks.py RUNS.csv [PICTURE.png]

A row is a method with its settings, at the learning rate that has served it best; losses are means over seeds, and gaps
are to the best dense runs of the same optimizer and seeds. How many times fewer bytes is against a ring all-reduce, both
ways: where all ranks gather all messages, a rank receives one from each other rank."""

import collections
import csv
import pathlib
import statistics
import sys

KEYS = ("method", "optimizer", "ranks", "density", "choice", "values", "local_weight", "matrix_rank", "every", "options",
        "task", "elements", "steps")
CHOICES = {"top": "", "": "", "chunks": ", of chunks", "leader": ", CLT-k's choice", "deft": ", DEFT's choice"}
NAMES = {"dense": "dense", "fp16": "fp16", "hook": "hook, gradients", "powersgd": "PowerSGD", "onebit": "1-bit Adam",
         "demo": "decoupled momentum, DCT of 64", "step": "CompressedStep"}
OWN = "momentum=own"  #: the way before: each rank's optimizer has its momentum


def read(path):
    """Settings -> rate -> seed -> row."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    with open(path, newline="", encoding="utf8") as file:
        for row in csv.DictReader(file):
            if row["method"] in ("dense", "fp16"):
                row["ranks"] = "any"
            found[tuple(row[key] for key in KEYS)][float(row["rate"])][row["seed"]] = row
    return found


def loss(rows):
    return statistics.fmean(float(row["loss"]) for row in rows.values())


def best(by_rate):
    """(rate, rows by seed): of the rates with most seeds, the one with the least loss."""
    most = max(len(rows) for rows in by_rate.values())
    return min(((rate, rows) for rate, rows in by_rate.items() if len(rows) == most), key=lambda each: loss(each[1]))


def gaps(found):
    """(settings, rate, rows by seed, loss, gap to the dense runs of these seeds)."""
    dense = {key[1:2] + key[-3:]: by_rate for key, by_rate in found.items() if key[0] == "dense"}
    for key, by_rate in found.items():
        rate, rows = best(by_rate)
        beside = dense.get(key[1:2] + key[-3:], {})
        alike = [loss({seed: each[seed] for seed in rows}) for each in beside.values() if rows.keys() <= each.keys()]
        yield dict(zip(KEYS, key)), rate, rows, loss(rows), loss(rows) - min(alike) if alike else float("nan")


def is_own(key):
    return OWN in key["options"] or key["optimizer"] == "lion" or int(key["every"] or 1) > 8


def usual_weights(key):
    """The local weights that go without saying."""
    late = key["density"] != "" and int(key["every"] or 1) / float(key["density"]) > 80
    return "", "0.5" if is_own(key) else "0.125" if late else "0.25"


def title(key):
    """The method with what differs from the package's settings."""
    parts = [NAMES[key["method"]] + (f" {key['matrix_rank']}" if key["matrix_rank"] else "") + CHOICES[key["choice"]]]
    usual = {"local_weight": usual_weights(key), "values": ("", "sign"), "every": ("", "1")}
    parts += [f"{name} {key[name]}".replace("values ", "") for name, values in usual.items() if key[name] not in values]
    parts += key["options"].split()
    return ", ".join(parts).replace("_", " ").replace("=", " ").replace(" True", "")


def fewer(key, rows):
    """Times fewer bytes than a ring all-reduce, both ways."""
    both_ways = "returned=" in key["options"]
    gathers = key["method"] in ("hook", "step", "demo") and key["choice"] in ("top", "chunks")
    return float(next(iter(rows.values()))["ratio"]) * (2 if both_ways else 2 / int(key["ranks"]) if gathers else 1)


def order(each):
    key = each[0]
    return (key["task"], int(key["elements"]), key["optimizer"], key["method"], key["ranks"].zfill(3),
            -float(key["density"] or 0), title(key))


def main():
    results = sorted(gaps(read(sys.argv[1])), key=order)
    several = len({(key["task"], key["elements"]) for key, *_ in results}) > 1
    print("| " + "task | parameters | " * several + "method | optimizer | ranks | density | rate × | bytes sent a step | fewer | "
          "loss | behind dense | seeds |")
    print("|" + "---|--:|" * several + "---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for key, rate, rows, mean, gap in results:
        first = next(iter(rows.values()))
        where = f"{key['task']} | {int(key['elements']):,} | " if several else ""
        print(f"| {where}{title(key)} | {key['optimizer']} | {key['ranks']} | {key['density'] or '-'} | {rate:g} | "
              f"{int(first['bytes']):,} | {fewer(key, rows):.0f} | {mean:.3f} | {gap:+.3f} | {len(rows)} |")
    if len(sys.argv) > 2:
        draw(results, pathlib.Path(sys.argv[2]))


def draw(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    curves = collections.defaultdict(list)
    for key, _, rows, _, gap in results:
        if key["optimizer"] == "adamw" and key["local_weight"] in usual_weights(key):
            label = NAMES[key["method"]] + CHOICES[key["choice"]] + ", own momentum" * is_own(key) + (
                ", sums in shards" * ("returned=" in key["options"])) + (
                f", {key['ranks']} ranks" if key["method"] == "step" else "")
            curves[label].append((fewer(key, rows), gap))
    figure, axes = plt.subplots(figsize=(9.5, 4.2))
    for i, (label, points) in enumerate(sorted(curves.items())):
        axes.plot(*zip(*sorted(points)), label=label, marker="osD^vPX*<>hd"[i % 12], markersize=5, fillstyle="none",
                  linestyle=":" if "own" in label else "-")
    axes.set(xscale="log", xlabel="times fewer bytes than a dense ring all-reduce, both ways", ylabel="loss behind the best dense run",
             title="AdamW on a GPT of 0.8 million parameters")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
