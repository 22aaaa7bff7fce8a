"""Makes a wheel in dist/ and installs it into a virtual environment that sees this Python's packages:
`python3 install.py ENVIRONMENT`. No download: it is built with the setuptools that is there."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

PROJECT = pathlib.Path(__file__).resolve().parents[1]
PIP = ["-m", "pip", "--disable-pip-version-check", "-q"]


def main():
    (environment,) = sys.argv[1:]
    python = pathlib.Path(environment) / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--system-site-packages", environment], check=True)
    with tempfile.TemporaryDirectory() as folder:
        made = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, str(PROJECT)]
        subprocess.run([python, *made], check=True)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        dist = PROJECT.parents[1] / "dist"
        dist.mkdir(exist_ok=True)
        wheel = shutil.move(wheel, dist / wheel.name)
        subprocess.run([python, *PIP, "install", "--no-deps", "--force-reinstall", str(wheel)], check=True)
    subprocess.run([python, "-c", "import gradsieve_ddp; print('gradsieve_ddp', gradsieve_ddp.__version__, 'for torch',"
                    " gradsieve_ddp.built_for)"], check=True)


if __name__ == "__main__":
    main()
