#!/usr/bin/env python3
"""What programs of users have to compile: check_weight.py closures|work [options] ROOT

closures follows the includes of README's programs and of some doors, and compares the lines and the number of the
library's headers with the budgets of tests/static/weight.txt, which has one for all headers too. No page and no example
includes an umbrella of the core, no header has more than 450 lines, and each that opens the library's namespace includes
the one that names its version. Nothing else than TOP and names with a dot in front is committed at the top level.

work compiles README's program and doors, and compares the memory that the compiler's front and middle ends allocate in
all (-ftime-report's last column) with that table. A budget of seconds would depend on the machine's load, and valgrind
takes 27 times as long to count instructions, which differ between processors besides. This memory grows with the text
that is parsed, the templates that are instantiated and the code that is emitted, and is the same on any machine with
the same compiler and standard library. 5 % more is a fault, and the headers that grew are named. Other compilers than
the table's are skipped: exit status 77.
"""

import argparse
import pathlib
import re
import subprocess
import sys

INCLUDE = re.compile(r"^\s*#\s*include\s*<(gradsieve/[^>]+)>", re.M)
UMBRELLA = re.compile(r"^\s*#\s*include\s*<(gradsieve/(?:gradsieve\.hpp|cuda\.cuh))>", re.M)
MENU = """#include <gradsieve/run_time.hpp>
template class gradsieve::any_compressor<gradsieve::full_menu, gradsieve::host>;
"""
CONFIG = "gradsieve/core/config.hpp"
COLLECTOR = ["--param", "ggc-min-expand=100", "--param", "ggc-min-heapsize=131072"]  # else they depend on the memory
MOST = 1.05
CEILING = 450
TOP = {"include", "tests", "bench", "examples", "cmake", "CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md"}


class Headers:
    """The library's headers: their lines, and what they include."""

    def __init__(self, root):
        self.root = root / "include"
        self.known = {}

    def read(self, name):
        if name not in self.known:
            text = (self.root / name).read_text(encoding="utf-8")
            self.known[name] = (text.count("\n"), INCLUDE.findall(text))
        return self.known[name]

    def lines(self, name):
        return self.read(name)[0]

    def closure(self, text):
        """Every header that a program includes, and which one includes it first."""
        found = dict.fromkeys(INCLUDE.findall(text), "the program")
        left = list(found)
        while left:
            name = left.pop(0)
            for each in self.read(name)[1]:
                if each not in found:
                    found[each] = name
                    left.append(each)
        return found


def program(root, name):
    """A program of README, the full menu, or an empty file with a door."""
    if name.startswith("gradsieve/"):
        return f"#include <{name}>\n"
    if name == "menu":
        return MENU
    blocks = re.findall(r"^```cpp\n(.*?)^```", (root / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    head, body = re.fullmatch(r"((?:#include .*\n)+)namespace gs = gradsieve;\n(.*)", blocks[0], re.S).groups()
    if name == "readme_device":  # the recipe is that of the program for a host
        policies = [line for line in head.splitlines(True) if "/comm/" not in line and "compressor.hpp" not in line]
        return "".join(policies) + "".join(line for line in blocks[1].splitlines(True) if line.startswith("#include"))
    return (f"{head}#include <iostream>\n#include <vector>\nnamespace gs = gradsieve;\nint main() {{\n"
            f"std::vector<float> gradient(2'058'408, 0.5f);\n{body}}}\n")


def read_table(path):
    """The rows of the table by their first word; lines of headers by name."""
    rows = {"compiler": [], "include": [], "closure": [], "work": [], "slow": []}
    lines = {}
    for row in path.read_text(encoding="utf-8").splitlines():
        words = row.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "lines":
            folder = "" if words[1] == "." else f"{words[1]}/"
            lines |= {f"gradsieve/{folder}{name}": int(count) for name, count in
                      (each.split("=") for each in words[2:])}
        else:
            rows[words[0]].append(words[1:])
    return rows, lines


def write_lines(path, headers):
    """Replaces the table's lines of headers by those that there are."""
    folders = {}
    for each in sorted(headers.root.rglob("*")):
        if each.suffix in (".hpp", ".cuh", ".h"):
            name = each.relative_to(headers.root).as_posix()
            folder, _, last = name.removeprefix("gradsieve/").rpartition("/")
            folders.setdefault(folder or ".", []).append(f"{last}={headers.lines(name)}")
    kept = [row for row in path.read_text(encoding="utf-8").splitlines() if not row.startswith("lines ")]
    rows = [f"lines {folder} {' '.join(each)}" for folder, each in folders.items()]
    path.write_text("\n".join(kept + rows) + "\n", encoding="utf-8")


def growth(headers, found, known):
    """Which headers of a program have more lines than in the table, or are not in it, most first."""
    grown = sorted(((headers.lines(name) - known.get(name, 0), name) for name in found), reverse=True)
    text = [f"  {more:+5} lines: {name}" + ("" if name in known else f", new, included by {found[name]}")
            for more, name in grown[:8] if more > 0]
    return "\n".join(text) or "  no header of it has more lines than in the table: look at what its templates do"


def closures(root, headers, rows, known):
    for name, lines, count in rows["closure"]:
        found = headers.closure(program(root, name))
        total = sum(headers.lines(each) for each in found)
        print(f"{name}: {total} of {lines} lines, {len(found)} of {count} headers")
        if total > int(lines) or len(found) > int(count):
            yield f"{name} includes {total} lines in {len(found)} headers, {lines} and {count} at most\n" \
                  f"{growth(headers, found, known)}"
    names = [each.relative_to(headers.root).as_posix() for each in sorted(headers.root.rglob("*.[hc]*"))]
    total = sum(headers.lines(name) for name in names)
    for lines, count in rows["include"]:
        print(f"include/: {total} of {lines} lines, {len(names)} of {count} headers")
        if total > int(lines) or len(names) > int(count):
            yield f"include/ has {total} lines in {len(names)} headers, {lines} and {count} at most: take away as much as you add"
    for name in names:
        if headers.lines(name) > CEILING:
            yield f"{name} has {headers.lines(name)} lines, {CEILING} at most"
        if "GRADSIEVE_ABI" in (headers.root / name).read_text(encoding="utf-8") and CONFIG not in headers.closure(f"#include <{name}>\n"):
            yield f"{name} opens namespace gradsieve and does not include {CONFIG}"
    listed = subprocess.run(["git", "-C", root, "ls-tree", "--name-only", "HEAD"], capture_output=True, text=True, check=False)
    for name in listed.stdout.split("\n"):  # none outside of a clone
        if name and not name.startswith(".") and name not in TOP:
            yield f"{name} is committed at the top level"
    pages = [each for each in root.rglob("*.md") if "build" not in each.relative_to(root).parts]
    for path in pages + [each for each in (root / "examples").rglob("*") if each.suffix in (".cpp", ".cu", ".hpp")]:
        for umbrella in UMBRELLA.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(root)} includes {umbrella}: include the policies that it names"


def memory(compiler, options, source):
    """Megabytes that the compiler allocates."""
    done = subprocess.run([*compiler, "-std=c++20", *COLLECTOR, "-ftime-report", *options, "-x", "c++", "-", "-o",
                           "/dev/null"], input=source, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    total = re.search(r"^ TOTAL .*?(\d+)([kM])\s*$", done.stderr, re.M)
    return int(total[1]) / (1 if total[2] == "M" else 1000)


def work(root, headers, rows, known, chosen):
    for name, most, *options in rows["work"] + (rows["slow"] if chosen.slow else []):
        source = program(root, name)
        if "/comm/mpi" in source and not chosen.mpi:
            print(f"{name}: skipped, there is no MPI")
            continue
        folders = [f"-I{each}" for each in [headers.root, *chosen.mpi]]
        is_now = memory([chosen.compiler], [*folders, *options], source)
        print(f"{name} ({' '.join(options)}): {is_now:.0f} MB, {most} in the table")
        if is_now > MOST * int(most):
            found = headers.closure(source)
            yield f"{name} takes {is_now:.0f} MB of the compiler's memory, {most} in the table: {is_now / int(most) - 1:.0%} more\n" \
                  f"{growth(headers, found, known)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["closures", "work"])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--table", type=pathlib.Path, help="instead of tests/static/weight.txt")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--mpi", action="append", default=[], metavar="FOLDER", help="with mpi.h")
    parser.add_argument("--slow", action="store_true", help="also the rows 'slow'")
    parser.add_argument("--lines", action="store_true", help="write the lines of all headers to the table, and end")
    chosen = parser.parse_args()
    chosen.root = chosen.root.resolve()
    table = chosen.table or chosen.root / "tests/static/weight.txt"
    headers = Headers(chosen.root)
    if chosen.lines:
        write_lines(table, headers)
        return
    rows, known = read_table(table)
    if chosen.what == "work":
        is_now = subprocess.run([chosen.compiler, "--version"], capture_output=True, text=True, check=True).stdout
        if rows["compiler"][0][0] not in is_now.split("\n", 1)[0].split():
            print(f"skipped: the table is that of g++ {rows['compiler'][0][0]}, and this is {is_now.splitlines()[0]}")
            sys.exit(77)
        found = list(work(chosen.root, headers, rows, known, chosen))
    else:
        found = list(closures(chosen.root, headers, rows, known))
    if found:
        print("\n".join(found))
        print(f"Include less, or write to {table.name} what it is worth, and the lines by --lines.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
