#!/usr/bin/env python3
"""Draws what gradsieve_bench measured: time against n, ratio to the floor against density, peers, DEFT's shares."""

import argparse
import math
import pathlib
import sys

from results import Amount, Results

NAMES = {"radix": "radix (exact)", "laplacian": "laplacian (k to 1.25 k)", "laplacian_exact": "laplacian (exact)",
         "hierarchical": "hierarchical (0.8 k to k)", "chunked": "chunked", "ldte": "ldte (k to 1.25 k)",
         "sidco": "sidco (k to 1.25 k)", "trimmed": "trimmed (exact)",
         "threshold_search": "threshold_search (k to 2 k)"}
STYLES = {"radix": ("C0", "o"), "laplacian": ("C1", "s"), "laplacian_exact": ("C2", "^"), "hierarchical": ("C4", "D"),
          "chunked": ("C3", "v"), "ldte": ("C5", "<"), "sidco": ("C6", ">"), "trimmed": ("C7", "P"),
          "threshold_search": ("C8", "X")}
OWN_STYLES = (("black", "*"), ("C9", "p"), ("C5", "h"), ("magenta", "d"))  # policies of the user's own, by turns
ONE_POINT = {"radix_deft", "adacomp_50", "adacomp_500"}  # of the report card: a point is no line
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), "-.")  # one a density
FLOOR = {"color": "0.35", "linestyle": "--"}


def power(n):
    """2^25 where it is a power of two."""
    return f"$2^{{{n.bit_length() - 1}}}$" if n & (n - 1) == 0 else f"{n:,}"


def percent(density):
    return f"{100 * density:g} %"


def asked(amount):
    """Of a title: "density 1 %" or "k = 10"."""
    return amount if amount.startswith("k = ") else f"density {amount}"


def apart(values):
    """Those of the values that have room for a label beside each other on a logarithmic axis; the least is one."""
    shown = []
    room = math.log(max(values) / min(values)) / 7
    for value in sorted(values):
        if not shown or value > shown[-1] and math.log(value / shown[-1]) >= room:
            shown.append(value)
    return shown


def steps(rows):
    """Those of whole steps that are drawn: of the library's selectors, and of policies of the user's own."""
    return [row for row in rows if row.family == "step" and row.who not in ONE_POINT]


def selectors_of(rows, x):
    """(label, color, marker, dash, rows in the order of x): one line a selector or policy of the user's own."""
    own = [who for who in dict.fromkeys(row.who for row in rows) if who not in NAMES]
    styles = STYLES | {who: OWN_STYLES[i % len(OWN_STYLES)] for i, who in enumerate(own)}
    return [(NAMES.get(who, who), *styles[who], "-", sorted(found, key=x)) for who in [*NAMES, *own]
            if (found := [row for row in rows if row.who == who])]


def lines_of(rows, x, split):
    """The same for each value of split(row), if it is a line and no point."""
    lines = []
    values = sorted({split(row) for row in rows})
    for label, color, marker, _, found in selectors_of(rows, x):
        for i, value in enumerate(values):
            part = [row for row in found if split(row) == value]
            if len({x(row) for row in part}) > 1:
                lines.append([label, color, marker, DASHES[i % len(DASHES)], part, value])
    shown = {line[-1] for line in lines}
    return [(label if len(shown) < 2 else f"{label}, {value}", *style) for label, *style, value in lines]


def draw_lines(axes, lines, x, y):
    for label, color, marker, dash, rows in lines:
        axes.plot([x(row) for row in rows], [y(row) for row in rows], color=color, marker=marker, linestyle=dash,
                  markersize=5, linewidth=1.4, label=label)


def legend_below(figure, axes, room):
    """One legend for all panels, in `room` inches below them."""
    entries = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    share = room / figure.get_figheight()
    figure.legend(entries.values(), entries.keys(), loc="lower center", ncol=min(6, len(entries)), fontsize=9.5,
                  frameon=False)
    return (0, share, 1, 1)


def draw_time(results, pyplot):
    """Time of a step against n above, its ratio to the floor's below; a column for each density that was swept."""
    rows = steps(results.select("step"))
    if len({row.n for row in rows}) < 2:
        return "steps at two sizes or more"
    values = sorted({row.amount for row in rows})
    figure, grid = pyplot.subplots(2, len(values), figsize=(max(7.5, 3.6 * len(values) + 1), 7.4), sharex=True,
                                   sharey="row", squeeze=False)
    floors = {}
    for row in rows:
        floors.setdefault(row.n, []).append(row.floor_ms)
    for (time, ratio), value in zip(grid.T, values):
        lines = selectors_of([row for row in rows if row.amount == value], lambda row: row.n)
        draw_lines(time, lines, lambda row: row.n, lambda row: row.ms)
        time.plot(sorted(floors), [sorted(floors[n])[len(floors[n]) // 2] for n in sorted(floors)], linewidth=1.4,
                  label="floor: r[i] += g[i]", **FLOOR)
        draw_lines(ratio, lines, lambda row: row.n, lambda row: row.ratio)
        ratio.axhline(1, linewidth=1.4, **FLOOR)
        time.set_title(asked(value), fontsize=11)
        ratio.set_xscale("log", base=2)
        first, last = (round(math.log2(n)) for n in (min(floors), max(floors)))
        ratio.set_xticks([1 << power for power in range(first, last + 1, 1 if last - first < 6 else 3)])
        ratio.set_xlabel("elements n")
    grid[0, 0].set_yscale("log")
    grid[0, 0].set_ylabel("time of a step, ms")
    grid[0, 0].yaxis.set_major_formatter("{x:g}")
    grid[1, 0].set_yscale("log")
    grid[1, 0].set_ylabel("time of a step / time of the floor")
    plain_ticks(grid[1, 0].yaxis, [row.ratio for row in rows] + [1])
    figure.suptitle(f"A whole step (accumulate, select, emit, residual), fp32, {threads(results)}")
    figure.tight_layout(rect=legend_below(figure, grid[0], 0.4))
    return figure


def draw_density(results, pyplot):
    """Ratio to the floor against density or k, a panel for each size that has two of them or more."""
    rows = steps(results.select("step"))
    sizes = sorted({row.n for row in rows if len({each.amount for each in rows if each.n == row.n}) > 1})
    if not sizes:
        return "steps of one size at two densities or more"
    by_k = all(row.amount.startswith("k = ") for row in rows)

    def x(row):
        return row.k if by_k else 100 * row.density
    rows = [row for row in rows if row.n in sizes]
    figure, grid = pyplot.subplots(1, len(sizes), figsize=(max(7, 3.6 * len(sizes) + 1), 4.8), sharex=True, sharey=True,
                                   squeeze=False)
    for axes, n in zip(grid[0], sizes):
        draw_lines(axes, selectors_of([row for row in rows if row.n == n], x), x, lambda row: row.ratio)
        axes.axhline(1, linewidth=1.4, label="floor: r[i] += g[i]", **FLOOR)
        axes.set_title(f"n = {power(n)}", fontsize=11)
        axes.set_xlabel("entries k" if by_k else "density k / n")
        axes.set_xscale("log")
        axes.set_xticks(apart([x(row) for row in rows]))
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:,g}" if by_k else "{x:g} %")
    grid[0, 0].set_ylim(0, max(1.2, 1.08 * max(row.ratio for row in rows)))
    grid[0, 0].set_ylabel("time of a step / time of the floor")
    figure.suptitle(f"A whole step, fp32, {threads(results)}")
    figure.tight_layout(rect=legend_below(figure, grid[0], 0.4))
    return figure


def draw_threads(results, pyplot):
    """Time of a step against threads, at every size."""
    rows = [row for row in steps(results.rows) if row.law == "laplace" and row.dtype == "fp32"]
    grid = {}
    for row in rows:
        grid.setdefault((row.n, row.amount), set()).add(row.threads)
    rows = [row for row in rows if len(grid[row.n, row.amount]) > 1]
    lines = lines_of(rows, lambda row: row.threads,
                     lambda row: Amount((row.n, row.amount), f"n = {power(row.n)}, {row.amount}"))
    if not lines:
        return "steps with two numbers of threads or more"
    figure, axes = pyplot.subplots(figsize=(7, 4.8))
    draw_lines(axes, lines, lambda row: row.threads, lambda row: row.ms)
    axes.set_xticks(sorted({row.threads for row in rows}))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("threads")
    axes.set_ylabel("time of a step, ms")
    axes.legend(fontsize=8)
    axes.set_title("A whole step, fp32", fontsize=11)
    return figure


PUBLISHED = ("published_radix", "published_hierarchical", "numpy_partition", "numpy_argpartition")  # selection alone


def draw_peers(results, pyplot):
    """Bars: the whole step, and selection alone, by the library and by others."""
    peers = [row for row in results.select("peer", n=results.n)]
    if not peers:
        return "peers (gradsieve_bench --peers)"
    own_names = list(dict.fromkeys(row.who for row in steps(results.rows) if row.who not in NAMES))
    jobs = [("whole step, exactly k", "step", ("radix", "laplacian_exact", *own_names),
             [row for row in peers if row.who not in PUBLISHED]),
            ("selection alone, no hint", "select", ("radix", "laplacian", "hierarchical"),
             [row for row in peers if row.who in PUBLISHED])]
    jobs = [job for job in jobs if job[3]]
    figure, panels = pyplot.subplots(1, len(jobs), figsize=(6.5 * len(jobs), 5), squeeze=False)
    for axes, (title, family, own, others) in zip(panels[0], jobs):
        rows = [row for who in own for row in results.select(family, who, n=results.n)] + others
        rows = [row for row in rows if row.density in {other.density for other in others}]
        labels = list(dict.fromkeys(row.who for row in rows))
        amounts = {row.density: row.amount for row in reversed(rows)}
        height = 0.8 / len(amounts)
        for i, density in enumerate(sorted(amounts)):
            at = {row.who: row for row in rows if row.density == density}
            ys = [labels.index(who) + (i - (len(amounts) - 1) / 2) * height for who in at]
            times = [f"{row.ms:,.0f} ms" if row.ms >= 1000 else f"{row.ms:.3g} ms" for row in at.values()]
            bars = axes.barh(ys, [row.ms for row in at.values()], height * 0.92, label=asked(amounts[density]),
                             color=[("C0", "#8fbbdc")[i % 2] if row.family != "peer" else ("0.45", "0.7")[i % 2]
                                    for row in at.values()])
            axes.bar_label(bars, times, fontsize=8, padding=4,
                           bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
        floors = sorted(row.floor_ms for row in rows if row.family != "peer") or [row.floor_ms for row in rows]
        floor = floors[len(floors) // 2]
        line = axes.axvline(floor, linewidth=1.4, **FLOOR)
        theirs = {row.who for row in others}
        axes.set_yticks(range(len(labels)), [who if who in own_names else ("" if who in theirs else "gradsieve ") +
                                             who.replace("_", " ") for who in labels])
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(0.5 * min(floor, min(row.ms for row in rows)), 4 * max(row.ms for row in rows))
        axes.xaxis.set_major_formatter("{x:,g}")
        axes.set_xlabel("time, ms")
        axes.set_title(title, fontsize=11)
        shades = [pyplot.Rectangle((0, 0), 1, 1, color=color) for color in ("0.45", "0.7")[:len(amounts)]]
        axes.legend([line] + shades, [f"floor (r[i] += g[i]), {floor:.3g} ms"] +
                    [asked(amounts[density]) for density in sorted(amounts)], fontsize=9, loc="upper center",
                    bbox_to_anchor=(0.5, -0.12), ncol=3, frameon=False, columnspacing=1.2, handlelength=1.6)
    figure.suptitle(f"The same job in other ways, n = {power(results.n)}, fp32, {threads(results)}")
    return figure


def draw_deft(results, pyplot):
    """Each rank's share of the selection against the number of ranks."""
    rows = sorted((row for row in results.select("deft", "radix", density=0.001)), key=lambda row: row.ranks)
    if len(rows) < 2:
        return "deft on two numbers of ranks or more"
    figure, axes = pyplot.subplots(figsize=(7, 4.8))
    ranks = [row.ranks for row in rows]
    axes.plot(ranks, [1 / p for p in ranks], label="ideal: 1 / P", **FLOOR)
    axes.plot(ranks, [row.figure("share_of_one") for row in rows], color="C0", marker="o", label="slowest rank")
    axes.plot(ranks, [row.figure("mean_share_of_one") for row in rows], color="C1", marker="s", label="mean rank")
    for row in rows[1:]:
        share = row.figure("share_of_one")
        axes.annotate(f"1/{1 / share:.3g}", (row.ranks, share), textcoords="offset points", xytext=(0, 8), fontsize=8,
                      ha="center")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(ranks, [str(p) for p in ranks])
    axes.yaxis.set_major_formatter(lambda y, _: f"1/{1 / y:g}" if y < 1 else f"{y:g}")
    axes.set_xlabel("ranks P")
    axes.set_ylabel("selection time of a rank / that of P = 1")
    axes.legend(fontsize=9)
    axes.set_title(f"DEFT's shares, radix, layers of ResNet-50 ({rows[0].n:,} elements),\n"
                   f"density {percent(rows[0].density)}, {threads(results)}, one rank at a time", fontsize=11)
    return figure


def threads(results):
    return f"{results.threads} thread{'s' if results.threads != 1 else ''}"


def plain_ticks(axis, values):
    """1, 1.2, 1.5, 2, 3, 5, 10, ... on a logarithmic axis, as far as the values go."""
    steps = (1, 2, 5) if max(values) / min(values) > 30 else (1, 1.2, 1.5, 2, 3, 4, 5, 7)
    low, high = 0.8 * min(values), 1.25 * max(values)
    axis.set_ticks([tick for e in range(-3, 5) for s in steps if low <= (tick := s * 10**e) <= high])
    axis.set_ticks([], minor=True)
    axis.set_major_formatter("{x:g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("json", type=pathlib.Path, nargs="+", help="what gradsieve_bench wrote, and peer_numpy.py")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="folder for the PNG files [that of the JSON]")
    chosen = parser.parse_args()
    results = Results(chosen.json)
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot.py: needs matplotlib (Debian and Ubuntu: apt install python3-matplotlib)")
    matplotlib.use("Agg")  # files only: works without a display
    from matplotlib import pyplot

    folder = chosen.output or chosen.json[0].parent
    if exchanges := sorted({row.who for row in results.rows if row.family == "exchange"}):
        print(f"plot.py: no picture shows whole exchanges ({', '.join(exchanges)}); table.py lists them")
    drawings = {"time": draw_time, "density": draw_density, "threads": draw_threads, "peers": draw_peers,
                "deft": draw_deft}
    for name, draw in drawings.items():
        figure = draw(results, pyplot)
        if isinstance(figure, str):
            print(f"plot.py: no {name}.png: the file has no {figure}")
            continue
        for axes in figure.axes:
            axes.grid(True, which="major", alpha=0.3)
            axes.set_axisbelow(True)
        if not figure.legends:  # else it is laid out around that
            figure.tight_layout()
        try:
            figure.savefig(folder / f"{name}.png", dpi=130)
        except OSError as error:
            sys.exit(f"plot.py: cannot write '{folder / name}.png': {error.strerror}")
        pyplot.close(figure)
        print(f"plot.py: wrote {folder / name}.png")


if __name__ == "__main__":
    main()
