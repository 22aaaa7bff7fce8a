"""What a hook has counted, as a dict of numbers, a table and a picture."""

from __future__ import annotations

import os
from typing import Any

from . import _arguments

STAGES = ("accumulate", "partition", "select", "exchange", "apply")
REMEMBERED = 100_000  # steps whose numbers are kept for pictures


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def set_ratios(values: dict[str, Any]) -> None:
    """`ratio`: bytes without compression over bytes sent. `ring_ratio`: what a rank receives in a ring all-reduce without
    compression over what it has received; on average ranks send as much as they receive. All-reduces
    count once, of which a ring moves 2 (P - 1) / P."""
    ring = 2 * (values["world"] - 1) / values["world"] if values["world"] else 0
    for prefix in ("", "total_"):
        baseline, sent, received = (values[prefix + name] for name in ("baseline_bytes", "bytes_sent", "bytes_received"))
        values[prefix + "ratio"] = baseline / sent if sent else 0.0
        values[prefix + "ring_ratio"] = ring * baseline / received if received else 0.0


class Report(dict):  # type: ignore[type-arg]
    """Numbers by name, of the last step of this rank and, with `total_` before the name, of all steps."""

    def __init__(self, values: dict[str, int | float], history: list[tuple[int, int, int, float]],
                 passthrough: dict[str, int]) -> None:
        """`passthrough`: the parameters that pass through uncompressed, and their elements."""
        super().__init__(values)
        self.passthrough = passthrough
        self._history = history

    def summary(self) -> str:
        """A table of the last step and of all steps."""
        rows = [("", "last step", "all steps")]
        rows.append(("step", f"{self['step']}", f"{self['total_steps']}"))
        for label, name in (("without compression", "baseline_bytes"), ("sent", "bytes_sent"),
                            ("received", "bytes_received")):
            rows.append((label, _bytes(self[name]), _bytes(self["total_" + name])))
        rows.append(("ratio", f"{self['ratio']:.1f}", f"{self['total_ratio']:.1f}"))
        rows.append(("ratio to a ring", f"{self['ring_ratio']:.1f}", f"{self['total_ring_ratio']:.1f}"))
        rows.append(("elements", f"{self['selected']}", "-"))
        rows.append(("of a budget of", f"{self['budget']}", "-"))
        rows.append(("passing through", f"{sum(self.passthrough.values())}", "-"))
        rows.append(("of parameters", f"{len(self.passthrough)}", "-"))
        rows.append(("not finite", f"{self['non_finite']}", f"{self['total_non_finite']}"))
        rows.append(("saturated", f"{self['saturated']}", f"{self['total_saturated']}"))
        rows.append(("ms", f"{1e3 * self['seconds']:.3f}", f"{1e3 * self['total_seconds']:.3f}"))
        rows += [(f"  {stage}", f"{1e3 * self['seconds_' + stage]:.3f}", "-") for stage in STAGES]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """matplotlib's figure of the bytes of a step, the ratio and the milliseconds, over the steps whose report was
        asked for; written to `path` where there is one. ImportError without matplotlib."""
        if path is not None:
            _arguments.writable("path", path)
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("gradsieve: pictures need matplotlib: pip install matplotlib") from error
        steps, sent, baseline, seconds = (list(each) for each in zip(*self._history)) if self._history else ([],) * 4
        figure = Figure(figsize=(7, 6), constrained_layout=True)
        FigureCanvasAgg(figure)
        upper, middle, lower = figure.subplots(3, 1, sharex=True)
        upper.plot(steps, baseline, label="without compression")
        upper.plot(steps, sent, label="sent")
        upper.set_ylabel("bytes")
        upper.set_yscale("log")
        upper.legend()
        middle.plot(steps, [a / b if b else 0 for a, b in zip(baseline, sent)])
        middle.set_ylabel("ratio")
        lower.plot(steps, [1e3 * each for each in seconds])
        lower.set_ylabel("ms")
        lower.set_xlabel("step")
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure
