#!/usr/bin/env python3
"""One header of many: amalgamate.py HEADER... > gradsieve.hpp, for programs that want to carry a single file.

HEADER is below include/, for example gradsieve/gradsieve.hpp gradsieve/plan.hpp gradsieve/comm/mpi.hpp. Each header
of the library is written once, before those that include it; includes of anything else stay where they are.
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r"#include <(gradsieve/[^>]+)>")
root = pathlib.Path(__file__).resolve().parent.parent / "include"
written = set()


def write(header):
    if header in written:
        return
    written.add(header)
    for line in (root / header).read_text().splitlines():
        included = INCLUDE.match(line)
        if included:
            write(included[1])
        elif line != "#pragma once":
            print(line)


if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
for name in sys.argv[1:]:
    if not (root / name).is_file():
        sys.exit(f"amalgamate.py: no header include/{name}")
print("// gradsieve, all in one header: cmake/amalgamate.py", *sys.argv[1:])
print("#pragma once")
for name in sys.argv[1:]:
    write(name)
