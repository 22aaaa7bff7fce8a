#!/usr/bin/env python3
"""Checks the Markdown files under a folder: relative links lead to files and headings that are there, Python and shell
blocks parse, the front page is short. Prints each fault as file:line and ends with 1 if there is any. --programs writes
the C++ blocks of the chapters as one file, for a compiler to check."""

import argparse
import ast
import pathlib
import re
import subprocess
import sys

FRONT_LINES = 200
SKIPPED = {"build", "out", ".git", "wrong_docs"}
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\w*)")
# [text](target), ![text](target), and [name]: target
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)")
USE = re.compile(r"\]\[([^\]\[]+)\]")


def markdown(root):
    for path in sorted(root.rglob("*.md")):
        if not SKIPPED & set(path.relative_to(root).parts):
            yield path


def parts(text):
    """(number, line) of the prose, and (number of the first line, language, code) of the blocks."""
    prose, blocks, fence = [], [], None
    for number, line in enumerate(text.split("\n"), 1):
        found = FENCE.match(line)
        if fence is None and found:
            fence, language, first, code = found[1], found[2], number + 1, []
        elif fence is not None and line.strip().startswith(fence):
            blocks.append((first, language, "\n".join(code)))
            fence = None
        elif fence is not None:
            code.append(line)
        else:
            prose.append((number, line))
    return prose, blocks


def anchors(path, cache={}):
    """The names that a page's headings have, as GitHub makes them."""
    if path not in cache:
        names = set()
        for _, line in parts(path.read_text(encoding="utf-8"))[0]:
            heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
            if not heading:
                continue
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            copies = 0
            while (name if copies == 0 else f"{name}-{copies}") in names:
                copies += 1
            names.add(name if copies == 0 else f"{name}-{copies}")
        cache[path] = names
    return cache[path]


def link_fault(path, target, root):
    """Why a link leads nowhere; empty if it does not."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return ""  # another site's
    name, _, anchor = target.partition("#")
    place = (path.parent / name).resolve() if name else path
    if not place.exists():
        return f"link to '{target}': no such file"
    if root not in place.parents and place != root:
        return f"link to '{target}': it leaves the project"
    if anchor and place.suffix == ".md" and anchor not in anchors(place):
        return f"link to '{target}': no such heading; there are {', '.join(sorted(anchors(place)))}"
    return ""


def code_fault(language, code):
    """Why a block of code does not parse; empty if it does, or is in a language that is not looked at."""
    if language == "python":
        try:
            ast.parse(code)
        except SyntaxError as error:
            return f"Python block: {error}"
    elif language in ("sh", "bash"):
        done = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"shell block: {done.stderr.strip()}"
    return ""


def faults(path, root):
    prose, blocks = parts(path.read_text(encoding="utf-8"))
    defined = {match[1].lower() for _, line in prose if (match := re.match(r"\[([^\]]+)\]:\s", line))}
    for number, line in prose:
        plain = re.sub(r"`[^`]*`", "code", line)
        for match in LINK.finditer(plain):
            if fault := link_fault(path, match[1] or match[2], root):
                yield number, fault
        for match in USE.finditer(plain):
            if match[1].lower() not in defined:
                yield number, f"link [{match[1]}] is not defined"
    for number, language, code in blocks:
        if fault := code_fault(language, code):
            yield number, fault
    if path == root / "README.md" and (lines := prose[-1][0] - 1) > FRONT_LINES:
        yield lines, f"the front page has {lines} lines, {FRONT_LINES} at most"


# What the chapters' blocks take for granted; each becomes a function of its own.
PRELUDE = """#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/comm/mpi_nodes.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/delta.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/overlap.hpp>
#include <gradsieve/parameters.hpp>
#include <gradsieve/plan.hpp>
#include <gradsieve/run_time.hpp>
#include <gradsieve/two_level.hpp>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iostream>
#include <vector>
namespace gs = gradsieve;
"""
FUNCTION = """void block_{number}(gs::mpi::communicator_ref comm, gs::layout layers, std::vector<float> gradient, gs::trace step,
    gs::recipe<> recipe, std::function<void(std::function<void(std::size_t)>)> backward) {{ {{
#line {line} "{path}"
{code}
}} }}
"""


def programs(root):
    """The C++ blocks of the pages under include/, without those of a device."""
    text = PRELUDE
    for path in markdown(root / "include"):
        for line, language, code in parts(path.read_text(encoding="utf-8"))[1]:
            if language == "cpp" and "gs::device" not in code:
                code = re.sub(r"^#include .*$", "", code, flags=re.M)
                text += FUNCTION.format(number=text.count("void block_"), line=line, path=path, code=code)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--programs", type=pathlib.Path, metavar="FILE", help="C++ file to write; nothing is checked then")
    chosen = parser.parse_args()
    root = chosen.root.resolve()
    if chosen.programs:
        chosen.programs.write_text(programs(root), encoding="utf-8")
        return
    pages = list(markdown(root))
    if not pages:
        sys.exit(f"check_docs.py: no Markdown under {root}")
    found = [f"{path.relative_to(root)}:{number}: {fault}" for path in pages for number, fault in faults(path, root)]
    print("\n".join(found) or f"check_docs.py: {len(pages)} pages are sound")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
