#!/usr/bin/env python3
"""gradsieve from Python without torch: NumPy gradients, through libgradsieve_c (BUILD_SHARED_LIBS).

    compressor = Compressor("radix+packed:delta,fp16@0.01", [("weight", 640), ("bias", 10)], "libgradsieve_c.so")
    message = compressor.compress(gradient)             # bytes; send them as you like
    mean = compressor.apply([message, another_ranks])   # the mean of all ranks' messages

Or the library exchanges, over anything that gathers the ranks' bytes:

    ranks = Communicator(comm.rank, comm.size, comm.allgather)             # mpi4py: comm = MPI.COMM_WORLD
    ranks = Communicator(dist.get_rank(), dist.get_world_size(), gather)   # torch.distributed, with
    def gather(mine): dist.all_gather_object(parts := [None] * dist.get_world_size(), mine); return parts
    compressor.exchange(ranks, gradient)                # the gradient becomes the mean of what the ranks sent

Run as a program, with the library's path, it tries both.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from typing import Callable, Sequence

import numpy as np


class Error(RuntimeError):
    """What the library refused, in its words."""


class _Layer(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("size", ctypes.c_uint64)]


_address, _size, _sizes, _int = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t), ctypes.c_int
_COLLECTIVES = {"all_reduce_float": (_address, _size, _int), "all_reduce_double": (_address, _size, _int),
                "all_gather": (_address, _size, _address, _sizes), "broadcast": (_address, _size, _int),
                "send_receive": (_address, _size, _int, _address, _size, _int),
                "all_to_all": (_address, _sizes, _address, _sizes)}


class _Table(ctypes.Structure):
    """gradsieve_communicator."""
    _fields_ = [("context", _address), ("rank", _int), ("size", _int),
                *((name, ctypes.CFUNCTYPE(_int, _address, *types)) for name, types in _COLLECTIVES.items())]


def _read(address: int | None, size: int) -> bytes:
    return ctypes.string_at(address, size) if size else b""


def _write(address: int | None, values: bytes) -> None:
    if values:
        ctypes.memmove(address, values, len(values))


class Communicator:
    """The collectives of gradsieve.h, made of one: gather(mine) returns the bytes of all ranks, in their order.

    Short, and the same bits on all ranks; every sum is received P times. For large sums, as of many passthrough layers,
    derive from it and replace _reduce().
    """

    def __init__(self, rank: int, size: int, gather: Callable[[bytes], Sequence[bytes]]) -> None:
        self._rank, self._size, self._gather = rank, size, gather
        self.failure: BaseException | None = None  # of the last call
        made = [kind(self._guarded(getattr(self, "_" + name))) for name, kind in _Table._fields_[3:]]
        self.table = _Table(None, rank, size, *made)

    def _guarded(self, call: Callable[..., None]) -> Callable[..., int]:
        def run(_context: int, *arguments: object) -> int:
            try:
                call(*arguments)
                return 0
            except BaseException as why:  # ctypes would print it, and return anything
                self.failure = why
                return 1
        return run

    def _reduce(self, values: np.ndarray, maximum: bool) -> np.ndarray:
        parts = [np.frombuffer(each, values.dtype) for each in self._gather(values.tobytes())]
        with np.errstate(all="ignore"):
            return np.maximum.reduce(parts) if maximum else sum(parts[1:], parts[0])  # in rank order

    def _all_reduce_float(self, in_out: int, count: int, maximum: int, dtype: type = np.float32) -> None:
        values = np.frombuffer(_read(in_out, count * np.dtype(dtype).itemsize), dtype)
        _write(in_out, self._reduce(values, bool(maximum)).tobytes())

    def _all_reduce_double(self, in_out: int, count: int, maximum: int) -> None:
        self._all_reduce_float(in_out, count, maximum, np.float64)

    def _all_gather(self, mine: int, size: int, to: int, sizes: Sequence[int]) -> None:
        parts = self._gather(_read(mine, size))
        if [len(each) for each in parts] != sizes[:self._size]:
            raise ValueError(f"the ranks gave {[len(each) for each in parts]} bytes, announced: {sizes[:self._size]}")
        _write(to, b"".join(parts))

    def _broadcast(self, in_out: int, size: int, root: int) -> None:
        _write(in_out, self._gather(_read(in_out, size) if self._rank == root else b"")[root])

    def _send_receive(self, out: int, out_size: int, _to: int, into: int, in_size: int, source: int) -> None:
        _write(into, self._gather(_read(out, out_size))[source][:in_size])

    def _all_to_all(self, out: int, out_sizes: Sequence[int], into: int, _in_sizes: Sequence[int]) -> None:
        head, made = struct.Struct(f"{self._size}Q"), b""
        for each in self._gather(head.pack(*out_sizes[:self._size]) + _read(out, sum(out_sizes[:self._size]))):
            sizes = head.unpack_from(each)
            begin = head.size + sum(sizes[:self._rank])
            made += each[begin:begin + sizes[self._rank]]
        _write(into, made)


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

    def exchange(self, ranks: Communicator, gradient: np.ndarray) -> None:
        """Replaces a float32 gradient by the mean over all ranks of what they sent. Collective."""
        if gradient.dtype != np.float32 or not gradient.flags.c_contiguous or not gradient.flags.writeable:
            raise TypeError("exchange() takes a float32 array that is contiguous and writable")
        ranks.failure = None
        try:
            self._do("exchange", self._at, ctypes.byref(ranks.table), ctypes.c_void_p(gradient.ctypes.data),
                     ctypes.c_size_t(gradient.size))
        except Error as refused:
            raise refused from ranks.failure

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
    run_ranks(layers)


def run_ranks(layers: Sequence[tuple[str, int]]) -> None:
    """Exchanges between ranks that are threads: each recipe needs another collective."""
    world, barrier, board = 3, threading.Barrier(3), [b""] * 3
    gradients = np.random.default_rng(1).standard_normal((world, 5010)).astype(np.float32)
    ends: list[dict[str, object]] = [{} for _ in range(world)]

    def gather_on(rank: int, mine: bytes) -> list[bytes]:
        board[rank] = mine
        barrier.wait(30)
        all_of_them = list(board)
        barrier.wait(30)
        return all_of_them

    def run(rank: int) -> None:
        ranks = Communicator(rank, world, lambda mine: gather_on(rank, mine))
        for recipe in ("radix+packed:delta,fp32@0.01", "radix+deft+index_union+packed:raw32,fp16@0.01",
                       "radix+cyclic+leader@0.01", "radix+reduce_scatter@0.01"):
            update = gradients[rank].copy()
            Compressor(recipe, layers, sys.argv[1]).exchange(ranks, update)
            ends[rank][recipe] = update
        broken = Communicator(rank, world, lambda mine: 1 // 0)
        try:
            Compressor("radix@0.01", layers, sys.argv[1]).exchange(broken, gradients[rank].copy())
        except Error as why:
            ends[rank]["broken"] = type(why.__cause__)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for recipe in ends[0]:
        if recipe == "broken":
            assert all(each[recipe] is ZeroDivisionError for each in ends), ends
        elif "reduce_scatter" in recipe:  # each rank has its own shard
            assert all(np.count_nonzero(each[recipe]) > 10 for each in ends), recipe
        else:
            assert all(np.array_equal(each[recipe], ends[0][recipe]) for each in ends), recipe
    made = [Compressor("radix+packed:delta,fp32@0.01", layers, sys.argv[1]) for _ in range(world)]
    mean = made[0].apply([each.compress(gradients[rank]) for rank, each in enumerate(made)])
    assert len(ends[0]) == 5 and np.allclose(ends[0]["radix+packed:delta,fp32@0.01"], mean, atol=1e-6)
    print(f"{world} ranks exchange by {len(ends[0]) - 1} recipes; an exception of a collective arrives")


if __name__ == "__main__":
    main()
