"""Collectives of the ranks: the contract, one that is made of a single gather, and those of mpi4py and torch."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Callable, Sequence

from ._library import Table, whole
from ._memory import view


class Collectives:
    """What the ranks do together: derive from it, and write the functions that a recipe needs. Memory comes as a
    memoryview, of format "f", "d" or "B" (bytes), which numpy.asarray() and torch.frombuffer() take without a copy, and
    is valid during the call only; results are written into it, and nothing is returned. All ranks must end with the
    same bits. An exception ends the step on this rank; others may wait until their transport gives up.

    Every recipe needs all_reduce and all_gather; `cyclic` broadcast, sums of 16-bit values send_receive,
    `reduce_scatter` and `coded_all_reduce` all_to_all.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.size = whole(size, "the number of ranks", 1, 2**31 - 1)
        self.rank = whole(rank, "the rank", 0, self.size - 1)
        self.failure: BaseException | None = None  # of the last call
        self._completed = ctypes.c_uint64(0)
        self.table = Table(None, self.rank, self.size, *(
            kind(self._guarded(getattr(self, "_" + name))) for name, kind in Table._fields_[3:-2]),
            ctypes.pointer(self._completed))

    def all_reduce(self, values: memoryview, maximum: bool) -> None:
        """Replaces floats or doubles by the ranks' sums or maxima."""
        raise NotImplementedError(f"{type(self).__name__} has no all_reduce")

    def all_gather(self, mine: memoryview, everything: memoryview, sizes: Sequence[int]) -> None:
        """Writes sizes[r] bytes of each rank r, back to back."""
        raise NotImplementedError(f"{type(self).__name__} has no all_gather")

    def broadcast(self, data: memoryview, root: int) -> None:
        """Sends the root's bytes to all ranks."""
        raise NotImplementedError(f"{type(self).__name__} has no broadcast")

    def send_receive(self, out: memoryview, to: int, into: memoryview, source: int) -> None:
        """Sends bytes to one rank while it receives bytes from another."""
        raise NotImplementedError(f"{type(self).__name__} has no send_receive")

    def all_to_all(self, out: memoryview, out_sizes: Sequence[int], into: memoryview, in_sizes: Sequence[int]) -> None:
        """Sends each rank r the next out_sizes[r] bytes, and writes in_sizes[r] bytes from it, back to back."""
        raise NotImplementedError(f"{type(self).__name__} has no all_to_all")

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        def run(_context: int | None, *arguments: Any) -> int:
            try:
                if function(*arguments) is not None:
                    raise TypeError("gradsieve: a collective returns nothing: it writes into the memory that it gets")
                self._completed.value += 1  # else the library knows that this was interrupted, whatever it returned
                return 0
            except BaseException as why:  # ctypes would print it, and return anything
                self.failure = why
                return 1
        return run

    def _all_reduce_float(self, address: int | None, count: int, maximum: int) -> None:
        return self.all_reduce(view(address, count, "f"), bool(maximum))

    def _all_reduce_double(self, address: int | None, count: int, maximum: int) -> None:
        return self.all_reduce(view(address, count, "d"), bool(maximum))

    def _all_gather(self, mine: int | None, size: int, to: int | None, sizes: Any) -> None:
        each = sizes[:self.size]
        return self.all_gather(view(mine, size, "B", True), view(to, sum(each), "B"), each)

    def _broadcast(self, address: int | None, size: int, root: int) -> None:
        return self.broadcast(view(address, size, "B"), root)

    def _send_receive(self, out: int | None, out_size: int, to: int, into: int | None, in_size: int,
                      source: int) -> None:
        return self.send_receive(view(out, out_size, "B", True), to, view(into, in_size, "B"), source)

    def _all_to_all(self, out: int | None, out_sizes: Any, into: int | None, in_sizes: Any) -> None:
        gives, gets = out_sizes[:self.size], in_sizes[:self.size]
        return self.all_to_all(view(out, sum(gives), "B", True), gives, view(into, sum(gets), "B"), gets)


class Gather(Collectives):
    """All collectives made of one: gather(mine) returns the bytes of all ranks, in their order. Every sum is received
    by each rank P times: for few ranks, or few passthrough layers."""

    def __init__(self, rank: int, size: int, gather: Callable[[bytes], Sequence[bytes]]) -> None:
        super().__init__(rank, size)
        self._gather = gather

    def all_reduce(self, values: memoryview, maximum: bool) -> None:
        parts = [memoryview(each).cast("B").cast(values.format) for each in self._gather(bytes(values))]
        try:
            import numpy
        except ImportError:
            rounded = ctypes.c_float if values.format == "f" else ctypes.c_double
            for i in range(len(values)):
                total = parts[0][i]
                for part in parts[1:]:
                    if not maximum:
                        total = rounded(total + part[i]).value
                    elif total == total and (part[i] > total or part[i] != part[i]):  # NaN wins, as NumPy has it
                        total = part[i]
                values[i] = total
            return
        with numpy.errstate(all="ignore"):
            result = numpy.array(parts[0])
            for part in parts[1:]:  # in rank order
                result = numpy.maximum(result, part) if maximum else result + numpy.asarray(part)
        numpy.asarray(values)[:] = result

    def all_gather(self, mine: memoryview, everything: memoryview, sizes: Sequence[int]) -> None:
        parts = self._gather(bytes(mine))
        if [len(each) for each in parts] != list(sizes):
            raise ValueError(f"the ranks gave {[len(each) for each in parts]} bytes, announced: {list(sizes)}")
        everything[:] = b"".join(parts)

    def broadcast(self, data: memoryview, root: int) -> None:
        data[:] = self._gather(bytes(data) if self.rank == root else b"")[root]

    def send_receive(self, out: memoryview, to: int, into: memoryview, source: int) -> None:
        into[:] = self._gather(bytes(out))[source][:len(into)]

    def all_to_all(self, out: memoryview, out_sizes: Sequence[int], into: memoryview, in_sizes: Sequence[int]) -> None:
        head, at = struct.Struct(f"{self.size}Q"), 0
        for each, wanted in zip(self._gather(head.pack(*out_sizes) + bytes(out)), in_sizes):
            begin = head.size + sum(head.unpack_from(each)[:self.rank])
            into[at:at + wanted] = each[begin:begin + wanted]
            at += wanted


def mpi(comm: Any) -> Collectives:
    """The collectives of an mpi4py communicator, such as MPI.COMM_WORLD."""
    from mpi4py import MPI

    def bounds(sizes: Sequence[int]) -> tuple[list[int], list[int]]:
        return list(sizes), [sum(sizes[:i]) for i in range(len(sizes))]

    class Mpi(Collectives):
        def all_reduce(self, values: memoryview, maximum: bool) -> None:
            kind = MPI.FLOAT if values.format == "f" else MPI.DOUBLE
            comm.Allreduce(MPI.IN_PLACE, [values, len(values), kind], op=MPI.MAX if maximum else MPI.SUM)

        def all_gather(self, mine: memoryview, everything: memoryview, sizes: Sequence[int]) -> None:
            comm.Allgatherv([mine, len(mine), MPI.BYTE], [everything, bounds(sizes), MPI.BYTE])

        def broadcast(self, data: memoryview, root: int) -> None:
            comm.Bcast([data, len(data), MPI.BYTE], root=root)

        def send_receive(self, out: memoryview, to: int, into: memoryview, source: int) -> None:
            comm.Sendrecv([out, len(out), MPI.BYTE], dest=to, recvbuf=[into, len(into), MPI.BYTE], source=source)

        def all_to_all(self, out: memoryview, out_sizes: Sequence[int], into: memoryview,
                       in_sizes: Sequence[int]) -> None:
            comm.Alltoallv([out, bounds(out_sizes), MPI.BYTE], [into, bounds(in_sizes), MPI.BYTE])

    return Mpi(comm.Get_rank(), comm.Get_size())


def torch_distributed(group: Any = None) -> Collectives:
    """The collectives of a process group of torch.distributed that works on host memory (gloo); None: the default."""
    from ._process_group import ProcessGroup

    return ProcessGroup(group)
