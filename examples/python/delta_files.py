"""A chain of checkpoints on disk: the first file is whole, each later one has what changed.

    delta_files.py save DIR weights.npy                   # the next version
    delta_files.py restore DIR weights.npy [--version N]  # writes version N, or the last one

Files are NUMBER-FINGERPRINT.npy or .delta. A save that is killed leaves the chain as it was. One process saves at a time.
"""

import os
import pathlib
import sys

import gradsieve
import numpy as np


def flat(weights):
    """All elements of a contiguous array, not a copy; of other types than these their bytes."""
    one = weights.reshape(-1)
    return one if one.dtype in (np.float32, np.float16) else one.view(np.uint8)


def fingerprint(weights):
    return gradsieve.delta.fingerprint([("weights", flat(weights).size)], flat(weights))


def restored(files):
    """The weights to which these files lead."""
    weights = np.require(np.load(files[0]), requirements="CW")
    versions = [int(each.stem.split("-")[1], 16) for each in files]
    decoder = gradsieve.delta.Decoder([("weights", flat(weights).size)], versions[0])
    for path in files[1:]:
        decoder.apply(path.read_bytes(), flat(weights))  # refuses what does not follow the version before
    if not fingerprint(weights) == decoder.version == versions[-1]:
        sys.exit(f"{files[-1]} does not lead to the weights that were saved: a file is damaged or missing")
    return weights


def put(path, write):
    """A file that is there as a whole, or not at all."""
    with open(f"{path}.partial", "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)


if len(sys.argv) not in (4, 6) or sys.argv[1] not in ("save", "restore"):
    sys.exit(__doc__)
folder, path = map(pathlib.Path, sys.argv[2:4])
files = sorted([*folder.glob("*-*.npy"), *folder.glob("*-*.delta")])
if sys.argv[1] == "restore":
    end = int(sys.argv[5]) + 1 if len(sys.argv) == 6 else len(files)
    if not 0 < end <= len(files):
        sys.exit(f"there is no such version in {folder}")
    weights = restored(files[:end])
    put(path, lambda file: np.save(file, weights))
else:
    folder.mkdir(parents=True, exist_ok=True)
    after = np.ascontiguousarray(np.load(path))
    name = f"{len(files):06}-{fingerprint(after):016x}"
    if not files:
        sys.exit(put(folder / f"{name}.npy", lambda file: np.save(file, after)))
    before = restored(files)
    assert (before.dtype, before.shape) == (after.dtype, after.shape), "other weights than the first ones"
    message = gradsieve.delta.Encoder([("weights", flat(after).size)]).encode(
        flat(after), flat(before), from_version=fingerprint(before), to_version=fingerprint(after))
    put(folder / f"{name}.delta", lambda file: file.write(message))
