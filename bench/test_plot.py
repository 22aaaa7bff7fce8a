#!/usr/bin/env python3
"""test_plot.py FILE: draws a --k sweep with policies of one's own, which gradsieve_bench has written, and looks at the
pictures: a line for each policy, labels of the axis beside each other. And at its report: no list of what it lacks."""

import io
import sys

import matplotlib

from plot import draw_density, draw_threads, draw_time
from results import Results
from table import write_goals

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402, after use()


def main():
    results = Results(sys.argv[1:])
    wrong = []
    for draw in (draw_time, draw_density):
        figure = draw(results, pyplot)
        figure.canvas.draw()
        drawn = {text.get_text() for text in figure.legends[0].texts}
        if missing := {"radix (exact)", "three_means", "four_means"} - drawn:
            wrong.append(f"{draw.__name__}: no line of {', '.join(sorted(missing))}")
        titles = [axes.get_title() for axes in figure.axes[:5]]
        if draw is draw_time and titles != ["k = 10", "k = 11", "k = 12", "k = 100", "k = 1,000"]:
            wrong.append(f"draw_time: columns {titles}")
        for axes in figure.axes:
            boxes = [text.get_window_extent() for text in axes.get_xticklabels() if text.get_text()]
            if any(a.overlaps(b) for a, b in zip(boxes, boxes[1:])):
                wrong.append(f"{draw.__name__}: labels {[text.get_text() for text in axes.get_xticklabels()]} overlap")
    if not isinstance(draw_threads(results, pyplot), str):
        wrong.append("draw_threads: lines of one number of threads")
    report = io.StringIO()
    write_goals(results, report)
    if report.getvalue().count("\n") > 6:
        wrong.append(f"the report begins with {report.getvalue()}")
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
