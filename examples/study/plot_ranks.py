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
         "step": "CompressedStep"}
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
    """(settings, rate, rows by seed, loss, gap to the dense runs of these seeds with usual options)."""
    dense = {key[1:2] + key[-3:]: by_rate for key, by_rate in found.items()
             if key[0] == "dense" and not key[KEYS.index("options")]}
    for key, by_rate in found.items():
        rate, rows = best(by_rate)
        beside = dense.get(key[1:2] + key[-3:], {})
        alike = [loss({seed: each[seed] for seed in rows}) for each in beside.values() if rows.keys() <= each.keys()]
        yield dict(zip(KEYS, key)), rate, rows, loss(rows), loss(rows) - min(alike) if alike else float("nan")


def is_own(key):
    return OWN in key["options"] or key["optimizer"] == "lion" or int(key["every"] or 1) > 8


def usual_weights(key):
    """The local weights that go without saying."""
    every = int(key["every"] or 1)
    late = key["density"] != "" and every / float(key["density"]) > (40 if every == 1 else 80)
    late |= every == 1 and key["ranks"].isdigit() and int(key["ranks"]) > 4
    return "", "0.5" if is_own(key) else "0.125" if late else "0.25"


def preset(key):
    """Its name, if it is one of CompressedStep's."""
    return "" if "outer_momentum=" not in key["options"] else "sparseloco" if key["choice"] == "chunks" else "diloco"


def title(key):
    """The method with what differs from the package's settings."""
    if preset(key):
        return f"CompressedStep, {preset(key)}"
    parts = [NAMES[key["method"]] + (f" {key['matrix_rank']}" if key["matrix_rank"] else "") + CHOICES[key["choice"]]]
    usual = {"local_weight": usual_weights(key), "values": ("", "sign"), "every": ("", "1")}
    parts += [f"{name} {key[name]}".replace("values ", "") for name, values in usual.items() if key[name] not in values]
    parts += key["options"].split()
    return ", ".join(parts).replace("_", " ").replace("=", " ").replace(" True", "")


def fewer(key, rows):
    """Times fewer bytes than a ring all-reduce, both ways."""
    both_ways = "returned=" in key["options"]
    gathers = key["method"] in ("hook", "step") and key["choice"] in ("top", "chunks")
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


def curve(key):
    """Its label, and on which of two pictures it is: all ways on 4 ranks; the usual one by number of ranks."""
    if preset(key):
        return preset(key), 0
    label = NAMES[key["method"]] + CHOICES[key["choice"]]
    if key["method"] != "step":
        return label, 0
    if key["values"] != "sign":
        return f"{label} {key['values']}, everything" if key["density"] == "1.0" else f"{label} {key['values']}", 0
    return (label + ", own momentum", 0) if is_own(key) else (f"{key['ranks']} ranks" + ", local steps" * (key["every"] != "1"), 1)


def draw(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import ticker
    figure, pictures = plt.subplots(1, 2, figsize=(11, 5.6), sharey=True)
    curves, most = (collections.defaultdict(list), collections.defaultdict(list)), 0.14
    for key, _, rows, _, gap in results:
        label, which = curve(key)
        if key["optimizer"] != "adamw" or key["local_weight"] not in usual_weights(key) and not preset(key) or (
                "beta=" in key["options"]):
            continue
        if key["ranks"] in ("any", "4") and which == 1:
            curves[0]["CompressedStep" + ", local steps" * (key["every"] != "1")].append((fewer(key, rows), gap))
        if which == 1 or key["ranks"] in ("any", "4"):
            curves[which][label].append((fewer(key, rows), gap))
    for axes, of, name in zip(pictures, curves, ("4 ranks", "CompressedStep")):
        for i, (label, points) in enumerate(sorted(of.items(), key=lambda each: (len(each[0].split()[0]), each))):
            far = [f"{gap:+.2f} at {ratio:.0f}" for ratio, gap in sorted(points) if gap > most]
            near = sorted(each for each in points if each[1] <= most) or [(float("nan"), 0)]
            axes.plot(*zip(*near), label=label + f" ({', '.join(far)})" * bool(far), marker="osD^vPX*<>hdp"[i % 13],
                      markersize=6, fillstyle="none", linestyle=":" if "local" in label else "-")
        axes.axhline(0, color="gray", linewidth=0.8)
        axes.set(xscale="log", ylim=(-0.02, most), title=name,
                 xlabel="times fewer bytes than a dense ring all-reduce, both ways")
        axes.grid(alpha=0.25)
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2)
    pictures[0].set_ylabel("loss behind the best dense run")
    figure.suptitle("AdamW on a GPT of 0.8 million parameters, 1,500 steps", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
