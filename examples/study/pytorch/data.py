"""Samples to train on: windows of a text's characters, images in IDX files, or ratings. Needs numpy only.

A step's samples follow from the seed and the step's number alone: no state has to be kept to go on from a
checkpoint, and P ranks together see what one would.
"""

from __future__ import annotations

import gzip
import pathlib
import struct
import zlib

import numpy as np

from options import UsageError


def share(batch: np.ndarray, rank: int, world: int) -> np.ndarray:
    """This rank's part of a batch whose length is a multiple of `world`."""
    each = len(batch) // world
    return batch[rank * each:(rank + 1) * each]


class Text:
    """Characters of a file, the last tenth held out.

    @throws UsageError if the file cannot be read as UTF-8 or is too short.
    """

    def __init__(self, path: pathlib.Path, context: int) -> None:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--text: cannot read '{path}': {getattr(error, 'strerror', None) or error}") from None
        alphabet = sorted(set(text))
        number = {character: i for i, character in enumerate(alphabet)}
        codes = np.array([number[character] for character in text], dtype=np.int64)
        cut = len(codes) - len(codes) // 10
        self.context, self.classes = context, len(alphabet)
        self.train, self.test = codes[:cut], codes[cut:]
        if len(self.test) <= context:
            raise UsageError(f"--text: '{path}' has {len(codes)} characters; windows of {context} and a tenth held "
                             f"out take at least {10 * (context + 1)}")

    def describe(self) -> str:
        return f"{len(self.train)} characters to train on, {len(self.test)} to test, {self.classes} different"

    def windows(self, codes: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and, one place on, targets: (len(starts), context) each."""
        places = starts[:, None] + np.arange(self.context)
        return codes[places], codes[places + 1]

    def batch(self, seed: int, step: int, size: int, rank: int, world: int) -> tuple[np.ndarray, np.ndarray]:
        """This rank's part of a step's `size` windows, anywhere in the training part."""
        starts = np.random.default_rng([seed, step]).integers(0, len(self.train) - self.context, size)
        return self.windows(self.train, share(starts, rank, world))

    def evaluation(self) -> tuple[np.ndarray, np.ndarray]:
        """The held-out part, window after window; of a long text 256 windows, evenly spread."""
        starts = np.arange(0, len(self.test) - self.context, self.context)
        return self.windows(self.test, starts[::max(1, len(starts) // 256)])


class Reversed(Text):
    """A text's windows, to be written backwards: inputs (N, 2, context) have a window and, one place late, its reverse."""

    def windows(self, codes: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        forwards = super().windows(codes, starts)[0]
        wanted = np.ascontiguousarray(forwards[:, ::-1])
        begin = np.full_like(wanted[:, :1], self.classes)
        return np.stack((forwards, np.concatenate((begin, wanted[:, :-1]), 1)), 1), wanted


class Images:
    """Images and labels of IDX files: train-* and t10k-*, or one pair of which every fifth image is held out.

    @throws UsageError that names the file and what is wrong with it.
    """

    def __init__(self, path: pathlib.Path) -> None:
        if path.is_dir():
            pairs = [images for prefix in ("train", "t10k") if (images := find(path / f"{prefix}-images-idx3-ubyte"))]
        else:
            pairs = [path] if path.exists() else []
        if not pairs:
            raise UsageError(f"--data: no images in '{path}': expected {{train,t10k}}-images-idx3-ubyte[.gz], and "
                             "labels-idx1 beside them")
        sets = [read_pair(each) for each in pairs]
        if len(sets) == 2:
            (self.train, self.train_labels), (self.test, self.test_labels) = sets
        else:
            (images, labels), held_out = sets[0], np.arange(len(sets[0][1])) % 5 == 4
            self.train, self.train_labels = images[~held_out], labels[~held_out]
            self.test, self.test_labels = images[held_out], labels[held_out]
        if not len(self.test_labels) or self.train.shape[1:] != self.test.shape[1:] or min(self.train.shape[1:]) < 4:
            raise UsageError(f"--data: '{path}' has too few images, or images of two sizes or below 4 x 4")
        self.side = self.train.shape[1:]
        self.classes = 1 + int(max(self.train_labels.max(), self.test_labels.max()))
        self.mean, self.spread = float(self.train.mean()), float(self.train.std()) or 1.0

    def describe(self) -> str:
        return (f"{len(self.train)} images to train on, {len(self.test)} to test, of {self.side[0]} x {self.side[1]}, "
                f"{self.classes} classes")

    def scaled(self, images: np.ndarray) -> np.ndarray:
        """Bytes to numbers of mean 0 and variance 1 over the training images, with a channel: (N, 1, height, width)."""
        return (images[:, None].astype(np.float64) - self.mean) / self.spread

    def batch(self, seed: int, step: int, size: int, rank: int, world: int) -> tuple[np.ndarray, np.ndarray]:
        """This rank's part of a step's `size` images, drawn anew in each step."""
        chosen = share(np.random.default_rng([seed, step]).integers(0, len(self.train), size), rank, world)
        return self.scaled(self.train[chosen]), self.train_labels[chosen]

    def evaluation(self) -> tuple[np.ndarray, np.ndarray]:
        return self.scaled(self.test), self.test_labels


class Ratings:
    """Ratings of items by users: a file whose lines begin with user, item and rating, set apart by tabs, as MovieLens
    has them; a heading is skipped. Every tenth line is held out.

    @throws UsageError if the file cannot be read or has fewer than 100 ratings.
    """

    def __init__(self, path: pathlib.Path) -> None:
        try:
            lines = [line.split("\t")[:3] for line in path.read_text(encoding="utf-8").splitlines()]
            rows = [(user, item, float(value)) for user, item, value in lines[not lines[0][2][:1].isdigit():]]
        except (OSError, ValueError, IndexError) as error:
            why = getattr(error, "strerror", None) or "lines do not begin with user, item and rating, set apart by tabs"
            raise UsageError(f"--ratings: cannot read '{path}': {why}") from None
        if len(rows) < 100:
            raise UsageError(f"--ratings: '{path}' has {len(rows)} ratings; 100 are needed at least")
        self.users, users = np.unique([row[0] for row in rows], return_inverse=True)
        self.items, items = np.unique([row[1] for row in rows], return_inverse=True)
        self.values, values = np.unique([row[2] for row in rows], return_inverse=True)
        pairs, held_out = np.stack((users, items), 1).astype(np.int64), np.arange(len(rows)) % 10 == 9
        self.classes = len(self.values)
        self.train, self.train_values = pairs[~held_out], values[~held_out].astype(np.int64)
        self.test, self.test_values = pairs[held_out], values[held_out].astype(np.int64)

    def describe(self) -> str:
        return (f"{len(self.train)} ratings to train on, {len(self.test)} to test, of {len(self.items)} items by "
                f"{len(self.users)} users, {self.classes} values")

    def batch(self, seed: int, step: int, size: int, rank: int, world: int) -> tuple[np.ndarray, np.ndarray]:
        """This rank's part of a step's `size` ratings, drawn anew in each step."""
        chosen = share(np.random.default_rng([seed, step]).integers(0, len(self.train), size), rank, world)
        return self.train[chosen], self.train_values[chosen]

    def evaluation(self) -> tuple[np.ndarray, np.ndarray]:
        return self.test, self.test_values


def find(path: pathlib.Path) -> pathlib.Path | None:
    """The file itself or its gzipped form."""
    return next((each for each in (path, path.with_name(path.name + ".gz")) if each.exists()), None)


def read_pair(images: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """An images file and the labels file whose name follows from its own."""
    name = images.name[:-3] if images.name.endswith(".gz") else images.name
    other = name.replace("images-idx3", "labels-idx1").replace("images.idx3", "labels.idx1")
    labels = find(images.with_name(other))
    if other == name or labels is None:
        raise UsageError(f"--data: there are no labels for '{images}': expected '{images.with_name(other)}[.gz]'")
    pictures, answers = read_idx(images, 3), read_idx(labels, 1)
    if len(pictures) != len(answers):
        raise UsageError(f"--data: '{images}' has {len(pictures)} items, '{labels}' has {len(answers)}")
    return pictures, answers.astype(np.int64)


def read_idx(path: pathlib.Path, dimensions: int) -> np.ndarray:
    """An IDX file of unsigned bytes: a big-endian header of dimensions + 1 words, then the bytes.

    @throws UsageError
    """
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"--data: cannot read '{path}': {getattr(error, 'strerror', None) or error}") from None
    header = 4 * (dimensions + 1)
    magic, *sizes = struct.unpack(f">{dimensions + 1}I", content[:header].ljust(header, b"\0"))
    present, expected = len(content) - header, int(np.prod(sizes, dtype=object))
    if magic != 0x800 + dimensions or present != expected or expected == 0:
        raise UsageError(f"--data: '{path}' is no IDX file of {dimensions}-dimensional bytes: magic number {magic:#x}, "
                         f"sizes {sizes}, {present} bytes after the header")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(sizes)
