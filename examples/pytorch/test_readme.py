"""Runs the programs of this folder's pages on two ranks, as they have them: `python3 test_readme.py`."""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

import torch

PAGES = [pathlib.Path(__file__).resolve().with_name(name) for name in ("README.md", "DETAILS.md")]
NEEDS = {"fsdp.py": (2, 8), "hsdp.py": (2, 8)}  # torch


def programs():
    """The pages' blocks of Python that begin with a file's name; a block "goes on" with an earlier one's program."""
    found = {}
    text = "".join(each.read_text() for each in PAGES)
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        named = re.match(r"# (\w+\.py)( goes on)?\n", block)
        if named:
            name, goes_on = named.groups()
            found[name] = found[name] + block if goes_on else block
    return found


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def run(name, text):
    """What each of two ranks said, and its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, name).write_text(text)
        common = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **os.environ, "WORLD_SIZE": "2",
                  "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        ranks = [subprocess.Popen([sys.executable, name], cwd=folder, env={**common, "RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
        said = [each.communicate(timeout=300)[0] for each in ranks]
    return said, [each.returncode for each in ranks]


def main():
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    found = programs()
    assert set(found) == {"ddp.py", "fsdp.py", "hsdp.py", "step.py", "passes.py"}, found.keys()
    for name, text in found.items():
        if version < NEEDS.get(name, version):
            print(f"{name}: skipped, torch {torch.__version__} has no such FSDP")
            continue
        said, codes = run(name, text)
        print(f"{name}:\n{said[0]}", flush=True)
        assert codes == [0, 0], said[1]
        assert name == "passes.py" or ("ratio" in said[0] and "without compression" in said[0]), name
        assert name != "ddp.py" or "measured" in said[0], "plan.compared() said nothing"


if __name__ == "__main__":
    main()
