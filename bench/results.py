"""Reads what gradsieve_bench writes with --benchmark_out=FILE --benchmark_out_format=json."""

import copy
import json
import sys


class Amount(str):
    """How much a row selects, a density or, where the user chose that, a k: sorts by `number`, reads as its text."""

    def __new__(cls, number, text):
        amount = super().__new__(cls, text)
        amount.number = number
        return amount

    def __lt__(self, other):
        return self.number < other.number


class Row:
    """One row: its names ("step", "radix"), its axes (n, density, law, dtype, threads, ranks) and its figures.
    `disturbed`: something else ran meanwhile, as the program has seen, or as the floor took over 2.5 times as long as
    the least of its size."""

    def __init__(self, entry):
        parts = [part for part in entry["name"].split("/") if part != "manual_time"]
        self.names = [part for part in parts if ":" not in part]
        axes = dict(part.split(":", 1) for part in parts if ":" in part)
        axes.pop("iterations", None)
        axes.pop("repeats", None)
        self.family, self.who = self.names[0], "/".join(self.names[1:])
        density = float(axes["density"])
        self.n, self.threads = int(axes["n"]), int(axes["threads"])
        self.density, self.ranks = density, int(axes.get("ranks", 1))
        self.k = int(entry.get("k", 0))
        self.amount = Amount(self.k, f"k = {self.k:,}") if "k" in axes else Amount(density, f"{100 * density:g} %")
        self.law, self.dtype = axes["law"], axes["dtype"]
        self.ms = float(entry["real_time"])
        self.ratio = float(entry["floor_ratio"])
        self.floor_ms = float(entry["floor_ms"])
        self.ns_per_element = float(entry["ns_per_element"])
        self.disturbed = float(entry.get("disturbed", 0)) > 0
        self.figures = entry

    def figure(self, name):
        return float(self.figures[name])

    def same_floor(self, other):
        return (self.n, self.dtype, self.threads) == (other.n, other.dtype, other.threads)


class Results:
    """All rows of the files, the first of which names the machine; of a row that was repeated, the run with the median
    time. `repeats`: the same of each repetition, with the rows that have it."""

    def __init__(self, paths):
        try:
            entries = []
            for path in reversed(paths):
                with open(path, encoding="utf-8") as file:
                    content = json.load(file)
                self.context = content["context"]
                entries = content["benchmarks"] + entries
            runs = {}
            for entry in entries:
                if entry["name"].startswith("plan/"):
                    continue  # no floor, no elements
                if entry.get("error_occurred"):
                    print(f"{sys.argv[0]}: no {entry['name']}: {entry.get('error_message', 'it failed')}")
                elif entry.get("run_type") != "aggregate":
                    runs.setdefault(entry["name"], []).append(Row(entry))
        except OSError as error:
            sys.exit(f"{sys.argv[0]}: cannot read '{path}': {error.strerror}")
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"{sys.argv[0]}: '{path}' is not what gradsieve_bench writes: {error!r}")
        self.rows = []
        for all_runs in runs.values():
            same = [row for row in all_runs if not row.disturbed] or all_runs
            row = sorted(same, key=lambda row: row.ms)[len(same) // 2]
            row.spread = (min(each.ratio for each in same), max(each.ratio for each in same)) if len(same) > 1 else None
            self.rows.append(row)
        for row in (run for all_runs in runs.values() for run in all_runs):
            least = min(other.floor_ms for other in self.rows if other.same_floor(row))
            row.disturbed |= row.floor_ms > 2.5 * least and row.floor_ms > 1
        self.n = int(self.context.get("elements", 0))
        self.threads = int(self.context.get("threads", 0))
        self.repeats = []
        for repeat in range(max(map(len, runs.values()), default=0)):
            view = copy.copy(self)
            view.rows = [all_runs[repeat] for all_runs in runs.values() if repeat < len(all_runs)]
            self.repeats.append(view)

    def select(self, family, who=None, **axes):
        """Rows of a family; where not asked otherwise, on Laplace gradients of fp32 with all threads."""
        axes = {"law": "laplace", "dtype": "fp32", "threads": self.threads, **axes}
        return [row for row in self.rows if row.family == family and who in (None, row.who)
                and all(getattr(row, name) == value for name, value in axes.items())]

    def one(self, family, who, density, **axes):
        """The one such row at the file's n, or None; a disturbed one does not count."""
        found = self.select(family, who, density=density, **{"n": self.n, **axes})
        return found[0] if found and not found[0].disturbed else None
