"""What the runs came to: a progress bar, a table, a CSV file."""

from __future__ import annotations

import csv
import statistics
import sys
from typing import Iterable, Iterator, TextIO

import accumulators
from hooks import COUNTED, TRACED
from trainer import Result


class Progress:
    """Steps of one hook on the error stream: tqdm's bar where that is installed, else a line every tenth."""

    def __init__(self, hook: str, first: int, last: int, speaks: bool) -> None:
        self.hook, self.first, self.last, self.bar = hook, first, last, None
        self.speaks = speaks
        if speaks:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self.bar = tqdm(total=last, initial=first, desc=hook, unit="step", mininterval=0.5)

    def __call__(self, step: int, loss: float) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
            self.bar.update()
        elif self.speaks and step * 10 // self.last != (step - 1) * 10 // self.last:
            print(f"{step * 100 // self.last:3d} %  {self.hook}, step {step}/{self.last}, loss {loss:.4f}",
                  file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def table(results: list[Result]) -> str:
    """Hooks in rows; against the row of hook none where there is one. A run of no steps has a dash."""
    measure = next((each for each in results if each.hook == "none" and each.losses), None)
    rows = [["hook", "final loss", "vs none %", "test loss", "test acc %", "sent kB", "received kB", "ratio",
             "step ms", "speed-up", "weights"]]
    for each in results:
        if not each.losses:
            rows.append([each.hook, "-", "-", f"{each.test_loss:.4f}", f"{100 * each.accuracy:.2f}", *"-----",
                         each.digest])
            continue
        sent, seconds = statistics.mean(each.sent), each.per_step(each.seconds)
        rows.append([
            each.hook, f"{each.loss:.4f}", f"{100 * (each.loss / measure.loss - 1):+.2f}" if measure else "-",
            f"{each.test_loss:.4f}", f"{100 * each.accuracy:.2f}", f"{sent / 1e3:.1f}",
            f"{statistics.mean(each.received) / 1e3:.1f}", f"{each.dense / sent:.1f}" if sent else "-",
            f"{1e3 * seconds:.1f}", f"{measure.per_step(measure.seconds) / seconds:.2f}" if measure else "-",
            each.digest])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.rjust(width) if i else cell.ljust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))) for row in rows)


def notes(results: list[Result]) -> str:
    """What the table's columns are, and how bytes were counted."""
    kinds = dict.fromkeys(each.hook.partition(":")[0] for each in results)
    counted = "; ".join(f"{kind}: {COUNTED[kind]}" for kind in kinds)
    return ("final loss: of the training batches of the last tenth of the steps, mean over ranks; kB: of a rank and "
            f"step, mean. Counted: {counted}. An all-reduce counts as a ring: 2 (P - 1) / P of its bytes. ratio: bytes "
            "that all gradients take / sent; step: median; weights: the same on all ranks, a digest.")


def steps(results: list[Result]) -> Iterator[list[object]]:
    """One row a hook and step; bytes and seconds are those of the step alone. wire: what left the network interface."""
    yield ["hook", "step", "loss", "bytes", "seconds", "received", "wire"]
    for each in results:
        for i, loss in enumerate(each.losses):
            yield [each.hook, each.first + i + 1, repr(loss), round(each.sent[i]), f"{each.seconds[i]:.6f}",
                   round(each.received[i]), each.wire[i] if each.wire else ""]


def traces(results: list[Result]) -> Iterator[list[object]]:
    """One row a hook of gradsieve's and step, as rank 0 saw it."""
    yield ["hook", "step", "loss", *TRACED]
    for each in results:
        for i, row in enumerate(each.traced):
            if row:
                yield [each.hook, each.first + i + 1, repr(each.losses[i]), *row]


def shapes(results: list[Result]) -> Iterator[list[object]]:
    """One row a hook of gradsieve's, sampled step and layer, of rank 0."""
    yield ["hook", *accumulators.COLUMNS]
    for each in results:
        for row in each.shapes:
            yield [each.hook, *row]


def summary(results: list[Result]) -> Iterator[list[object]]:
    """One row a hook; bytes are those of a rank and step. Medians leave dense steps of a warm-up out; of CompressedStep
    they are of exchanges, shared out to their steps."""
    yield ["hook", "final_loss", "test_loss", "accuracy", "dense", "sent", "received", "median_sent", "median_received",
           "median_wire", "median_step_ms", "weights", "passed", "buckets", "predicted_ms", "measured_ms"]
    for each in results:
        if each.losses:
            yield [each.hook, f"{each.loss:.6f}", f"{each.test_loss:.6f}", f"{each.accuracy:.6f}", round(each.dense),
                   round(statistics.mean(each.sent)), round(statistics.mean(each.received)),
                   round(each.per_step(each.sent)), round(each.per_step(each.received)),
                   round(each.per_step(each.wire)) if each.wire else "",
                   f"{1e3 * each.per_step(each.seconds):.3f}", each.digest, each.passed, each.buckets,
                   f"{1e3 * each.predicted:.3f}", f"{1e3 * each.measured:.3f}"]


def write_csv(file: TextIO, rows: Iterable[list[object]]) -> None:
    csv.writer(file, lineterminator="\n").writerows(rows)
