#!/usr/bin/env python3
"""check_policy_names.py INCLUDE   where the selectors, partitioners and residual stores of the full menu are named.

A policy is named in its own header, in the menu, in compiled_recipe.hpp, which a static_assert compares with the menu, in
one umbrella, and, where it is a recipe's default, in step/recipe.hpp.
Whoever adds one then has these places to look at, and no others. Comments and texts do not count.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]) / "gradsieve"
menu = (root / "run_time/menu.hpp").read_text()
umbrellas = {"gradsieve.hpp", "published.hpp"}
everywhere = {"run_time/menu.hpp", "run_time/compiled_recipe.hpp", "step/recipe.hpp"} | umbrellas


policies = []
for family in ("selectors", "partitioners", "residuals"):
    listed = re.search(rf"using {family} = type_list<([^>]*)>", menu)[1]
    policies += [name.strip() for name in listed.split(",")]
words_of_other_things = {"whole", "none", "error_feedback"}  # used of other things too; another store's default

sources = {}
for path in sorted(root.rglob("*")):
    if path.suffix in (".hpp", ".cuh"):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        sources[str(path.relative_to(root))] = re.sub(r'"[^"\n]*"', "", text)
faults = []
for name in policies:
    if name in words_of_other_things:
        continue
    for path, text in sources.items():
        own = pathlib.PurePath(path).stem == name
        if not own and path not in everywhere and re.search(rf"\b{name}\b", text):
            faults.append(f"{path} names {name}, which its own header, the menu and an umbrella name")
if not policies:
    faults.append("the menu has no policies")
print("\n".join(faults) or f"{len(policies)} policies are named in their own headers, the menu and an umbrella only")
sys.exit(bool(faults))
