#!/usr/bin/env python3
"""Checks that figures of the pages are those of committed results: figures.py [--write] [--made TABLE=COMMIT...] [ROOT [PAGE...]]

A table with figures needs one of these comments on the line before it; --write makes the rows new:
    <!-- table NAME: KEY=VALUE; KEY=A|B: COLUMN; COLUMN as TITLE -->  of a CSV file; without rows or columns: all
    <!-- table by SCRIPT FILE -->                                     what a Python script prints
    <!-- by hand: COMMAND, YYYY-MM-DD -->                             no result is committed
    <!-- not measured: WHY -->                                        claims of papers, years
A section with a line "Recorded YYYY-MM-DD" counts as measured by hand. On examples/STUDY.md a paragraph or list item
with a decimal figure needs a comment after its last line; each of its numbers must come from a line of that comment. A
table may have such a comment above it, and `figures in FILE` stands for one whose lines are in that file:
    <!-- figures
    NAME: KEY=VALUE: COLUMN; COLUMN        cells, each of which the text must state, with or without what follows the ±
    range NAME: KEY=VALUE: COLUMN; COLUMN  the least and the largest of these cells, which the text must state
    count NAME: KEY=VALUE; COLUMN<1        how many rows these are
    from NAME: KEY=VALUE: COLUMN           cells to compute with, which the text need not state
    = 2 * 203.3 / (2.33 + 4.06)            computed of whole numbers and of cells named above
    page FILE: 92.2 90.9                   stands on another page
    hand COMMAND, YYYY-MM-DD: 1.21 2.9     measured by hand, no result is committed
    given: 400 1.62                        settings, and claims of papers
    -->
NAME is that of a file examples/study/NAME.table.csv, or a path from the root; of Google Benchmark's JSON a row is a
benchmark, of a page the row of a table. A condition is one of = ~ (begins with) < <= > >=; it stands in quotes if it
has ": ". A line that ends with ; or : goes on in the next, and a COLUMN may have *. Numbers are compared as far as they
are written; "1.5 behind" states -1.47, but a number with a sign needs that sign.

examples/study/made.csv has for each table of the study the commit of the program that made it, and a hash of the code
of each policy in it, with which its figures hold. If that code has changed, the column "older than" names the change
and the policy, as in "8ff7414 (laplacian)"; the page shows both above the table. --made TABLE=COMMIT writes a row new:
for a table that was run again, or with its old commit after a change that changes no figure."""

import argparse
import ast
import csv
import fnmatch
import functools
import hashlib
import json
import operator
import pathlib
import re
import subprocess
import sys

PAGES = ["README.md", "bench/README.md", "bench/TRAINING.md", "examples/STUDY.md", "examples/pytorch/README.md",
         "examples/pytorch/DETAILS.md", "examples/simulate/README.md", "include/gradsieve/plan/README.md"]
NUMBER = re.compile(r"(?<![\w^.,/+:-])[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?![\w^]|\.\d)")
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d|\d,\d{3}")
DATE = r"20\d\d-\d\d-\d\d"
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
COMPUTE = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


class Fault(Exception):
    pass


def value(text):
    return float(text.replace(",", "").replace("−", "-"))


def numbers(text):
    return [each[0] for each in NUMBER.finditer(text)]


def states(written, meant):
    """Whether a number as written is this one, rounded."""
    half = 0.5 * 10.0 ** -len(written.partition(".")[2]) + 1e-9
    number = value(written)
    if written[0] in "-−+":
        return abs(number - meant) <= half
    return abs(number - abs(meant)) <= half


def table_rows(lines):
    """The rows of a page's tables, by the names of their columns."""
    head = None
    for line in lines:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else None
        if head and cells and not re.fullmatch(r"[-:|\s]+", line):
            yield dict(zip(head, cells))
        head = cells and (head or cells)


@functools.cache
def rows(root, name):
    path = root / name if "/" in name else root / f"examples/study/{name}.table.csv"
    if not path.exists():
        raise Fault(f"there is no {path.relative_to(root)}")
    if path.suffix == ".md":
        return list(table_rows(path.read_text(encoding="utf-8").split("\n")))
    if path.suffix == ".json":
        return [{key: str(each) for key, each in row.items()} for row in json.loads(path.read_text())["benchmarks"]]
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def column(row, name, source):
    if name not in row:
        raise Fault(f"{source} has no column '{name}', but {', '.join(row)}")
    return row[name]


def fits(row, condition, source):
    name, sign, wanted = re.fullmatch(r"(.*?)(<=|>=|=|~|<|>)(.*)", condition.replace("\0", " ")).groups()
    found = column(row, name.strip(), source)
    if sign == "=":
        return found in wanted.strip().split("|")
    if sign == "~":
        return found.startswith(wanted.strip())
    return COMPARE[sign](value(numbers(found)[0]), value(wanted))


def picked(root, clause):
    """(rows, columns, keys in the conditions, NAME) of 'NAME: CONDITIONS: COLUMNS'."""
    hidden = re.sub(r'"([^"]*)"', lambda quoted: quoted[1].replace(": ", ":\0").replace("; ", ";\0"), clause)
    source, *rest = (part.strip() for part in re.split(r":\s", hidden + " "))
    conditions = next((part for part in rest if re.search(r"[=~<>]", part)), "")
    columns = next((part for part in rest if part and part != conditions), "")
    conditions = [each for each in conditions.split("; ") if each]
    for each in conditions:
        if not re.search(r"[=~<>]", each):
            raise Fault(f"'{each}' is no condition")
    keys = [re.split("[=~<>]", each)[0].strip() for each in conditions]
    found = rows(root, source)
    if source.endswith(".md"):  # of the page's tables those with such columns
        found = [row for row in found if row.keys() >= set(keys)]
    found = [row for row in found if all(fits(row, each, source) for each in conditions)]
    if not found:
        raise Fault(f"'{clause.strip()}' picks no row")
    return found, [each for each in columns.split("; ") if each], keys, source


def computed(text, cells):
    """The value of an expression of whole numbers and of cells."""
    def walk(node):
        if isinstance(node, ast.Expression):
            return walk(node.body)
        if isinstance(node, ast.BinOp) and type(node.op) in COMPUTE:
            return COMPUTE[type(node.op)](walk(node.left), walk(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, float) and not any(states(str(node.value), each) for each in cells):
                raise Fault(f"'= {text}': {node.value} is in none of the cells above")
            return node.value
        raise Fault(f"'= {text}' is no sum, difference, product or quotient")
    return walk(ast.parse(text, mode="eval"))


def check_text(root, text, marker):
    """Faults of a paragraph with its marker."""
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "`", text))
    written = numbers(text)
    allowed, cells = [], []

    def must(meant, clause):
        allowed.append(meant)
        if not any(states(each, meant) for each in written):
            yield f"the text does not state {meant:g} of '{clause}'"

    marker = re.sub(r"([:;])\n\s*", r"\1 ", marker)
    for clause in filter(None, (line.strip() for line in marker.split("\n"))):
        kind, _, rest = clause.partition(" ")
        if kind == "given:":
            allowed += [value(each) for each in numbers(rest)]
        elif kind == "hand":
            if not re.search(rf", {DATE}: ", rest):
                yield f"'{clause}': name the command and the date"
            for each in numbers(rest.rpartition(": ")[2]):
                yield from must(value(each), clause)
        elif kind == "page":
            name, _, wanted = rest.partition(": ")
            there = {each.lstrip("+-") for each in numbers((root / name).read_text(encoding="utf-8"))}
            for each in numbers(wanted):
                allowed.append(value(each))
                if each.lstrip("+-") not in there:
                    yield f"{each} is not on {name}"
        elif kind == "=":
            yield from must(computed(rest, cells), clause)
        elif kind == "count":
            yield from must(float(len(picked(root, rest)[0])), clause)
        else:
            found, columns, keys, source = picked(root, rest if kind in ("range", "from") else clause)
            if not columns:
                raise Fault(f"'{clause}' names no column")
            for row in found:
                for key in keys:
                    for each in numbers(row[key]):
                        allowed += [value(each)] + [100 * value(each)] * (key in ("density", "bytes of"))
            names = [name for each in columns for name in fnmatch.filter(found[0], each) or [each]]
            texts = [column(row, each, source) for row in found for each in names]
            inside = [some for text in texts if (some := [value(each) for each in numbers(text)])]
            if not inside:
                raise Fault(f"'{clause}' picks no figure")
            cells += [number for some in inside for number in some]
            if kind == "from":
                continue
            for some in (min(inside), max(inside)) if kind == "range" else inside:
                yield from must(some[0], clause)
                allowed += some[1:]
    for each in written:
        if not any(states(each, meant) for meant in allowed):
            yield f"{each} comes from no result that the comment names"


def made_table(root, clause):
    """The lines of a table."""
    if clause.startswith("by "):
        script, *arguments = clause[3:].split()
        command = [sys.executable, root / script, *(root / each for each in arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Fault(f"{script} failed: {done.stderr.strip()}")
        return done.stdout.strip().split("\n")
    found, columns, _, source = picked(root, clause)
    columns = [each.partition(" as ")[::2] for each in columns] or [(each, "") for each in found[0]]
    lines = [[title or name for name, title in columns], ["---"] * len(columns)]
    lines += [[column(row, name, source) for name, _ in columns] for row in found]
    return ["|" + "|".join(line) + "|" for line in lines]


def code_of(root, policy):
    """A hash of a policy's header without comments, blanks, directives and the lines of its namespace."""
    for path in sorted((root / "include/gradsieve").glob(f"*/{policy}.hpp")):
        code = re.sub(r"//.*|^#.*|^namespace .*|^[A-Z_]+$", "", path.read_text(encoding="utf-8"), flags=re.M)
        return hashlib.sha256("".join(code.split()).encode()).hexdigest()[:8]
    return "none"


MADE = "examples/study/made.csv"


@functools.cache
def made_rows(root):
    path = root / MADE
    return {row["table"]: row for row in rows(root, MADE)} if path.exists() else {}


def made_line(row):
    return f"Commit {row['commit']}" + (f"; older than {row['older than']}" if row["older than"] else "")


def made_faults(root):
    tables = {path.name.removesuffix(".table.csv") for path in (root / "examples/study").glob("*.table.csv")}
    for name in sorted(tables ^ made_rows(root).keys()):
        yield f"{MADE}: {name} needs both a row and a table"
    for name, row in made_rows(root).items():
        known = set(re.findall(r"\w+", row["older than"]))
        for policy, code in (each.split(":") for each in row["policies"].split()):
            if code_of(root, policy) != code and policy not in known:
                yield (f"{MADE}: {name}: {policy}.hpp has changed since {row['commit']}: run the table again, write "
                       f"'COMMIT ({policy})' as older than, or if no figure can change: figures.py --made "
                       f"{name}={row['commit']}")


def write_made(root, wanted):
    for each in wanted:
        name, _, commit = each.partition("=")
        if name not in made_rows(root) or not commit:
            sys.exit(f"figures.py: --made {each}: expected TABLE=COMMIT with one of {', '.join(made_rows(root))}")
        row = made_rows(root)[name]
        older = row["older than"] if commit == row["commit"] else ""  # a new commit has run the table again
        known = re.findall(r"\w+", older)
        codes = [each.split(":") for each in row["policies"].split()]
        codes = [f"{policy}:{code if policy in known else code_of(root, policy)}" for policy, code in codes]
        row |= {"commit": commit, "older than": older, "policies": " ".join(codes)}
    with (root / MADE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["table", "commit", "older than", "policies"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(made_rows(root).values())


def blocks(lines):
    """(first line, end, kind) of paragraphs, list items, tables and comments, without code, headings and pictures."""
    at, fenced = 0, False
    while at < len(lines):
        line, first = lines[at], at
        at += 1
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or not line.strip() or re.match(r"#{1,6} |!\[", line):
            continue
        elif line.lstrip().startswith("<!--"):
            while "-->" not in lines[at - 1]:
                at += 1
            yield first, at, "comment"
        elif line.startswith("|"):
            while at < len(lines) and lines[at].startswith("|"):
                at += 1
            yield first, at, "table"
        else:
            while at < len(lines) and lines[at].strip() and not re.match(r"\s*(<!--|[-*] |\d\. |```)|\||#", lines[at]):
                at += 1
            yield first, at, "text"


def with_markers(lines):
    """(first line, end, kind, marker) of tables and texts: that of a table stands above it, that of a text below."""
    found = list(blocks(lines))
    starts = {(first, kind) for first, _, kind in found}
    comments = {}
    for first, end, kind in found:
        text = "\n".join(lines[first:end]).strip()[4:-3].strip() if kind == "comment" else ""
        if re.match(r"table |figures\s|by hand: |not measured: ", text):
            comments[end if (end, "table") in starts else first] = text
    for first, end, kind in found:
        if kind != "comment":
            yield first, end, kind, comments.get(first if kind == "table" else end, "")


def recorded(lines, first):
    """Whether the section says when it was measured."""
    begin = max((i for i in range(first) if lines[i].startswith("## ")), default=0)
    return any(re.match(f"Recorded {DATE}", line) for line in lines[begin:first])


def check(root, page, prose, write):
    """(line, fault) of a page; with write its tables are made new."""
    path = root / page
    lines = path.read_text(encoding="utf-8").split("\n")
    made = []
    for first, end, kind, marker in with_markers(lines):
        have = lines[first:end]
        try:
            if marker.startswith("not measured: "):
                continue
            if marker.startswith("by hand: "):
                if not re.search(rf".+, {DATE}$", marker):
                    yield first + 1, "measured by hand: name the command and the date"
            elif kind == "table" and marker.startswith("table "):
                wanted = made_table(root, " ".join(marker[6:].split()))
                if row := made_rows(root).get(marker[6:].strip()):
                    if lines[first - 2] != made_line(row) and not write:
                        yield first - 1, f"expected '{made_line(row)}', as {MADE} has it"
                    made.append((first - 2, first - 1, [made_line(row)]))
                made.append((first, end, wanted))
                if wanted != have and not write:
                    at = next(i for i in range(len(have) + 1) if wanted[i:i + 1] != have[i:i + 1])
                    yield first + 1 + at, f"the result has {''.join(wanted[at:at + 1]) or 'no such row'}"
            elif marker.startswith("figures"):
                in_file = re.fullmatch(r"figures in (\S+)", marker)
                clauses = (root / in_file[1]).read_text(encoding="utf-8") if in_file else marker[7:]
                for fault in check_text(root, "\n".join(have), clauses):
                    yield first + 1, fault
            elif (kind == "table" or prose) and not recorded(lines, first):
                if DECIMAL.search(re.sub(r"`[^`]*`|\]\([^)]*\)", "", "\n".join(have))):
                    yield first + 1, f"{kind} with figures that name no result"
        except Fault as fault:
            yield first + 1, str(fault)
    if write and made:
        for first, end, wanted in reversed(made):
            lines[first:end] = wanted
        path.write_text("\n".join(lines), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the tables new that name a file or a script")
    parser.add_argument("--prose", action="store_true", help="check the text of all pages, not of STUDY.md alone")
    parser.add_argument("--made", action="append", default=[], metavar="TABLE=COMMIT", help="which commit made a table")
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("pages", nargs="*", default=PAGES)
    chosen = parser.parse_args()
    if chosen.made:
        write_made(chosen.root, chosen.made)
    found = list(made_faults(chosen.root))
    for page in chosen.pages:
        for line, fault in check(chosen.root, page, chosen.prose or page == "examples/STUDY.md", chosen.write):
            found.append(f"{page}:{line}: {fault}")
    print("\n".join(found) or f"figures.py: the figures of {len(chosen.pages)} pages are those of committed results")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
