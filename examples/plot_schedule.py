#!/usr/bin/env python3
"""Draws what examples/simulate writes: from its CSV file efficiency and exposed communication against workers, a line a
planner, a picture a trace and network; from Chrome traces (--timeline, one file a plan) an iteration of each plan, one
above the other."""

import argparse
import csv
import json
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


def read_timeline(path):
    """(what kind, start ms, milliseconds, group) of each span of a Chrome trace, by lane."""
    try:
        with open(path, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        spans = [(event["cat"], event["ts"] / 1e3, event["dur"] / 1e3, event["args"]["group"], event["tid"])
                 for event in events if event["ph"] == "X"]
    except OSError as error:
        sys.exit(f"plot_schedule.py: cannot read '{path}': {error.strerror}")
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"plot_schedule.py: '{path}' is no Chrome trace of simulate: {error}")
    if not spans:
        sys.exit(f"plot_schedule.py: '{path}' has no spans")
    return spans


COLORS = {"forward": "#c9d7e8", "backward": "#7f9dc4", "select": "#b59ad0", "all_reduce": "#e39a4f",
          "reduce_scatter": "#e39a4f", "all_gather": "#f0c48f"}


def draw_timelines(paths, title, output, pyplot):
    """One row a plan: computing above, the groups' exchanges below, all on one axis of time."""
    plans = [(path.stem, read_timeline(path)) for path in paths]
    figure, panels = pyplot.subplots(len(plans), 1, figsize=(11, 1.1 + 1.25 * len(plans)), sharex=True, squeeze=False)
    end = max(start + length for _, spans in plans for _, start, length, _, _ in spans)
    seen = {}
    for axes, (name, spans) in zip(panels[:, 0], plans):
        lanes = max(lane for *_, lane in spans)
        for kind, start, length, group, lane in spans:
            communicates = kind not in ("forward", "backward", "select")
            axes.broken_barh([(start, length)], (lanes - lane + 0.08, 0.84), facecolor=COLORS.get(kind, "0.6"),
                             edgecolor="white" if communicates else "none", linewidth=0.7)
            seen.setdefault(kind.replace("_", "-"), pyplot.Rectangle((0, 0), 1, 1, color=COLORS.get(kind, "0.6")))
            if communicates and length > 0.03 * end:
                axes.text(start + length / 2, lanes - lane + 0.5, str(group + 1), ha="center", va="center", fontsize=8)
        last = max(start + length for _, start, length, _, _ in spans)
        computing = max(start + length for kind, start, length, _, _ in spans if kind in ("forward", "backward"))
        groups = len({group for kind, _, _, group, _ in spans if kind not in ("forward", "backward", "select")})
        axes.axvline(computing, color="0.3", linewidth=0.9, linestyle=(0, (3, 2)))
        axes.set_yticks([lanes + 0.5] + [lanes - lane + 0.5 for lane in range(1, lanes + 1)],
                        ["compute"] + [f"network {lane}" if lanes > 1 else "network" for lane in range(1, lanes + 1)],
                        fontsize=9)
        axes.set_ylim(0, lanes + 1)
        axes.set_xlim(0, 1.01 * end)
        axes.set_title(f"{name}: {groups} group{'s' if groups != 1 else ''}, {last:.0f} ms", fontsize=10.5, loc="left")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(axis="y", length=0)
    panels[-1, 0].set_xlabel("ms; numbers are groups, the dashed line is the end of the backward pass")
    figure.suptitle(title, fontsize=13)
    figure.legend(seen.values(), seen.keys(), loc="upper right", ncol=len(seen), fontsize=9, frameon=False,
                  bbox_to_anchor=(0.99, 0.955), columnspacing=1.2, handlelength=1.4)
    figure.tight_layout(rect=(0, 0, 1, 0.99))
    save(figure, output, pyplot)


def save(figure, output, pyplot):
    try:
        figure.savefig(output, dpi=110)
    except OSError as error:
        sys.exit(f"plot_schedule.py: cannot write '{output}': {error.strerror}")
    pyplot.close(figure)
    print(f"plot_schedule.py: wrote {output}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=pathlib.Path, nargs="?", help="what simulate --csv wrote")
    parser.add_argument("--timeline", type=pathlib.Path, nargs="+", metavar="JSON",
                        help="what simulate --chrome wrote, one file a plan, called after it")
    parser.add_argument("--title", default="One iteration, plan by plan", help="of the timelines")
    parser.add_argument("-o", "--output", type=pathlib.Path,
                        help="folder for the PNG files [beside the table], or with --timeline the PNG file [timeline.png]")
    chosen = parser.parse_args()
    if (chosen.table is None) == (chosen.timeline is None):
        parser.error("give a table, or --timeline and its files")
    pictures = read(chosen.table) if chosen.table else {}

    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_schedule.py: needs matplotlib (Debian and Ubuntu: apt install python3-matplotlib)")
    matplotlib.use("Agg")  # files only: works without a display
    from matplotlib import pyplot

    if chosen.timeline:
        draw_timelines(chosen.timeline, chosen.title, chosen.output or pathlib.Path("timeline.png"), pyplot)
        return
    folder = chosen.output or chosen.table.parent
    for (trace, network), lines in pictures.items():
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.2))
        for i, (planner, points) in enumerate(lines.items()):
            style = {"color": f"C{i % 10}", "marker": "os^Dv<>PX*"[i % 10], "markersize": 5, "label": planner,
                     "linestyle": ("-", (0, (6, 2)), (0, (1, 1.5)), "-.")[i % 4],
                     "linewidth": 2.4 if planner == "optimal" else 1.3}
            workers, exposed, efficiency = zip(*sorted(points))
            left.plot(workers, efficiency, **style)
            right.plot(workers, exposed, **style)
        counts = sorted({point[0] for points in lines.values() for point in points})
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xticks(counts, [str(count) for count in counts], fontsize=9)
            axes.minorticks_off()
            axes.set_xlabel("workers")
            axes.grid(True, which="major", alpha=0.3)
        left.set_ylim(0, 1.03)
        left.set_ylabel("efficiency: speed-up / workers")
        right.set_yscale("symlog", linthresh=1)
        right.set_ylim(bottom=0)
        right.set_ylabel("exposed communication, ms an iteration")
        right.yaxis.set_major_formatter("{x:g}")
        left.legend(fontsize=9, title="planner")
        figure.suptitle(f"Simulated data-parallel training: {trace} on {network}", fontsize=13)
        figure.tight_layout()
        output = folder / (re.sub(r"[^A-Za-z0-9._-]+", "_", f"schedule_{trace}_{network}") + ".png")
        save(figure, output, pyplot)


if __name__ == "__main__":
    main()
