"""The package is in ../python: this is its old place, and goes with the next version."""

import os
import pathlib

os.chdir(pathlib.Path(__file__).resolve().parents[1] / "python")
exec(compile(pathlib.Path("setup.py").read_text(), os.path.abspath("setup.py"), "exec"),
     {"__name__": "__main__", "__file__": os.path.abspath("setup.py")})
