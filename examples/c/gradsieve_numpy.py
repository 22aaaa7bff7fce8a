#!/usr/bin/env python3
"""gradsieve from Python without torch: NumPy gradients in, bytes out, through libgradsieve_c (BUILD_SHARED_LIBS).

    compressor = Compressor("radix+packed:delta,fp16@0.01", [("weight", 640), ("bias", 10)], library="libgradsieve_c.so")
    message = compressor.compress(gradient)             # bytes; send them as you like
    mean = compressor.apply([message, another_ranks])   # the mean of all ranks' messages
    compressor.exchange(comm, gradient)                 # both in one, in place; comm has collectives, as Alone below

Run as a program, with the library's path, it tries that with two compressors.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Callable, Sequence

import numpy as np


class Error(RuntimeError):
    """What the library refused, in its words."""


class _Layer(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("size", ctypes.c_uint64)]


_AT, _INT, _SIZE, _SIZES = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)


class _Collectives(ctypes.Structure):  # gradsieve_communicator
    _fields_ = [("context", _AT), ("rank", _INT), ("size", _INT),
                ("all_reduce_float", ctypes.CFUNCTYPE(_INT, _AT, _AT, _SIZE, _INT)),
                ("all_reduce_double", ctypes.CFUNCTYPE(_INT, _AT, _AT, _SIZE, _INT)),
                ("all_gather", ctypes.CFUNCTYPE(_INT, _AT, _AT, _SIZE, _AT, _SIZES)),
                ("broadcast", ctypes.CFUNCTYPE(_INT, _AT, _AT, _SIZE, _INT)),
                ("send_receive", ctypes.CFUNCTYPE(_INT, _AT, _AT, _SIZE, _INT, _AT, _SIZE, _INT)),
                ("all_to_all", ctypes.CFUNCTYPE(_INT, _AT, _AT, _SIZES, _AT, _SIZES))]


def _array(at: int, count: int, dtype: Any = np.uint8) -> np.ndarray:
    if count == 0:
        return np.empty(0, dtype)
    return np.frombuffer((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(at), dtype)


def _parts(at: int, sizes: Any, ranks: int) -> list[np.ndarray]:
    ends = np.cumsum([sizes[rank] for rank in range(ranks)])
    return np.split(_array(at, int(ends[-1])), ends[:-1])


def _collectives(comm: Any, raised: list[BaseException]) -> _Collectives:
    """The callbacks of an object's methods. ctypes drops what a callback raises, and the library would get a number by
    chance, 0 for success: so each returns 1 then, and adds to `raised`."""
    forms: dict[str, tuple[str, Callable[..., tuple]]] = {
        "all_reduce_float": ("all_reduce", lambda at, count, maximum: (_array(at, count, np.float32), bool(maximum))),
        "all_reduce_double": ("all_reduce", lambda at, count, maximum: (_array(at, count, np.float64), bool(maximum))),
        "all_gather": ("all_gather", lambda mine, size, to, sizes: (_array(mine, size), _parts(to, sizes, comm.size))),
        "broadcast": ("broadcast", lambda at, size, root: (_array(at, size), root)),
        "send_receive": ("send_receive", lambda out, size, to, into, expected, source: (
            _array(out, size), to, _array(into, expected), source)),
        "all_to_all": ("all_to_all", lambda out, sizes, into, expected: (
            _parts(out, sizes, comm.size), _parts(into, expected, comm.size)))}

    def guarded(method: Callable[..., None], form: Callable[..., tuple]) -> Callable[..., int]:
        def call(_: int, *arguments: Any) -> int:
            try:
                method(*form(*arguments))
                return 0
            except BaseException as why:  # Ctrl-C too
                raised.append(why)
                return 1
        return call

    table = _Collectives(rank=comm.rank, size=comm.size)
    types = dict(field[:2] for field in _Collectives._fields_)
    for name, (method, form) in forms.items():
        if hasattr(comm, method):
            setattr(table, name, types[name](guarded(getattr(comm, method), form)))
    return table


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

    def exchange(self, comm: Any, gradient: np.ndarray) -> None:
        """Replaces a float32 gradient by the mean of the ranks' updates. Collective.

        `comm` has `rank`, `size` and those of the collectives of gradsieve.h that the recipe needs, as methods. They
        read and write arrays of float32 or float64 (all_reduce) and of bytes, which are valid until they return;
        gathered bytes and those of all_to_all are lists with an array for each rank. If one raises, so does this.
        """
        if gradient.dtype != np.float32 or not gradient.flags.c_contiguous or not gradient.flags.writeable:
            raise ValueError("a gradient is a contiguous writable array of float32")
        raised: list[BaseException] = []
        table = _collectives(comm, raised)
        try:
            self._do("exchange", self._at, ctypes.byref(table), ctypes.c_void_p(gradient.ctypes.data),
                     ctypes.c_size_t(gradient.size))
        except Error as why:
            if raised and not isinstance(raised[0], Exception):
                raise raised[0]
            raise why from (raised[0] if raised else None)

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


class Alone:
    """The collectives of one rank."""

    rank, size = 0, 1

    def all_reduce(self, values: np.ndarray, maximum: bool) -> None:
        """The sums of one rank are what they are."""

    def all_gather(self, mine: np.ndarray, parts: list[np.ndarray]) -> None:
        parts[0][:] = mine


class Broken(Alone):
    def all_gather(self, mine: np.ndarray, parts: list[np.ndarray]) -> None:
        raise OSError("no route to host")


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
    in_place = gradient.copy()
    try:
        a.exchange(Broken(), in_place)
    except Error as why:
        assert isinstance(why.__cause__, OSError), why
    else:
        raise AssertionError("an exchange whose collective raised went on")
    a.exchange(Alone(), in_place)
    assert np.count_nonzero(in_place) == np.count_nonzero(mean)
    try:
        a.load(b"nonsense")
    except Error as why:
        print(f"{len(messages[0])} bytes for {gradient.nbytes}; refused: {why}")
    else:
        raise AssertionError("a damaged state was taken")


if __name__ == "__main__":
    main()
