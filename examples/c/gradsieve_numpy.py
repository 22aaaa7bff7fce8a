#!/usr/bin/env python3
"""gradsieve from Python without torch: NumPy gradients in, bytes out, through libgradsieve_c (BUILD_SHARED_LIBS).

    compressor = Compressor("radix+packed:delta,fp16@0.01", [("weight", 640), ("bias", 10)], library="libgradsieve_c.so")
    message = compressor.compress(gradient)             # bytes; send them as you like
    mean = compressor.apply([message, another_ranks])   # the mean of all ranks' messages

Run as a program, with the library's path, it tries that with two compressors.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Sequence

import numpy as np


class Error(RuntimeError):
    """What the library refused, in its words."""


class _Layer(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("size", ctypes.c_uint64)]


class Compressor:
    """One rank's compressor; see gradsieve.h. Not for concurrent use."""

    def __init__(self, recipe: str, layers: Sequence[tuple[str, int]], library: str = "libgradsieve_c.so") -> None:
        self._at = ctypes.c_void_p()
        self._call = ctypes.CDLL(library)
        self._call.gradsieve_error.restype = ctypes.c_char_p
        self._call.gradsieve_destroy.restype = None
        if "\0" in recipe or any("\0" in name or not 0 <= size < 2**32 for name, size in layers):
            raise ValueError("a recipe or a name has a zero byte, or a size is not below 2**32")
        self.size = sum(size for _, size in layers)
        table = (_Layer * len(layers))(*[_Layer(name.encode(), size) for name, size in layers])
        self._do("create", recipe.encode(), table, ctypes.c_size_t(len(layers)), ctypes.byref(self._at))

    def __del__(self) -> None:
        if getattr(self, "_at", None):
            self._call.gradsieve_destroy(self._at)

    def compress(self, gradient: np.ndarray, rank: int = 0) -> bytes:
        """Selects what to send of a float32 gradient; the rest stays in the residual.

        `rank` is this rank's number: with the codec qsgd, ranks with different numbers round independently.
        """
        values = np.ascontiguousarray(gradient, dtype=np.float32).ravel()
        message, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._do("compress_as", self._at, ctypes.c_int(rank), ctypes.c_void_p(values.ctypes.data),
                 ctypes.c_size_t(values.size), ctypes.byref(message), ctypes.byref(size))
        return ctypes.string_at(message, size.value)

    def apply(self, messages: Sequence[bytes]) -> np.ndarray:
        """The mean of messages, one of each rank."""
        if isinstance(messages, (bytes, bytearray)):
            raise TypeError("apply() takes a list of messages")
        mean = np.empty(self.size, dtype=np.float32)
        table = (ctypes.c_char_p * len(messages))(*messages)
        sizes = (ctypes.c_size_t * len(messages))(*[len(each) for each in messages])
        self._do("apply", self._at, table, sizes, ctypes.c_size_t(len(messages)), ctypes.c_void_p(mean.ctypes.data),
                 ctypes.c_size_t(mean.size))
        return mean

    def save(self) -> bytes:
        """Everything that the next steps depend on."""
        size = ctypes.c_size_t(0)
        self._call.gradsieve_save(self._at, None, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        self._do("save", self._at, room, ctypes.byref(size))
        return room.raw

    def load(self, state: bytes) -> None:
        """Goes on where save() was."""
        self._do("load", self._at, state, ctypes.c_size_t(len(state)))

    def _do(self, what: str, *arguments: object) -> None:
        if getattr(self._call, "gradsieve_" + what)(*arguments) != 0:
            raise Error(self._call.gradsieve_error().decode(errors="replace"))


def main() -> None:
    layers = [("weight", 5000), ("bias", 10)]
    a, b = (Compressor("laplacian+packed:delta,fp32@0.01", layers, sys.argv[1]) for _ in range(2))
    gradient = np.random.default_rng(0).standard_normal(5010).astype(np.float32)
    messages = [a.compress(gradient), b.compress(gradient)]
    mean = a.apply(messages)
    kept = mean != 0
    assert messages[0] == messages[1] and np.array_equal(mean[kept], gradient[kept]) and kept[5000:].all()
    b.load(a.save())
    assert a.compress(gradient) == b.compress(gradient)
    try:
        a.load(b"nonsense")
    except Error as why:
        print(f"{len(messages[0])} bytes for {gradient.nbytes}; refused: {why}")
    else:
        raise AssertionError("a damaged state was taken")


if __name__ == "__main__":
    main()
