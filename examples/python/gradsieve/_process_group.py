"""The collectives of torch's process groups, on memory of the library: no copy of it."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

import torch
import torch.distributed as dist

from ._library import Table
from .collectives import Collectives

TAG = 26483  #: of send and recv


class ProcessGroup(Collectives):
    """One group, which nothing else uses meanwhile: its collectives run in the order of the calls. Shares of different
    sizes are gathered by a broadcast each, which all run at once, as process groups gather equal shares only.

    Tensors are kept until the next call has ended: a thread of the group's that lets go of one last, behind wait(), would
    need Python's lock, and abort at the interpreter's end, or be waited for by who holds the lock and ends the group."""

    def __init__(self, group: Any = None) -> None:
        self._tensors: list[torch.Tensor] = []  # of this call
        self._before: list[torch.Tensor] = []   # of the one before
        self._group = group if group is not None else dist.group.WORLD
        super().__init__(dist.get_rank(group), dist.get_world_size(group))

    def release(self) -> None:
        """Lets the group go at once. This object is in a cycle with the library's functions, and whoever collects it, as a
        child of fork() may, would wait for the group's threads."""
        self._group = None

    def _around(self, address: int | None, count: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor of this memory."""
        if not count:
            return torch.empty(0, dtype=dtype, device="cpu")
        size = count * {torch.float64: 8, torch.uint8: 1}.get(dtype, 4)
        return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)

    def _values(self, address: int | None, count: int, dtype: torch.dtype) -> torch.Tensor:
        self._tensors.append(self._around(address, count, dtype))
        return self._tensors[-1]

    def _bytes(self, address: int | None, count: int) -> torch.Tensor:
        return self._values(address, count, torch.uint8)

    def _parts(self, address: int | None, sizes: list[int]) -> list[torch.Tensor]:
        parts = list(self._bytes(address, sum(sizes)).split(sizes))
        self._tensors += parts
        return parts

    def _all_reduce_float(self, address: int | None, count: int, maximum: int, dtype: torch.dtype = torch.float32) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX if maximum else dist.ReduceOp.SUM
        tensors = [self._values(address, count, dtype)]
        self._finish("allreduce", lambda: [self._group.allreduce(tensors, options)])

    def _all_reduce_double(self, address: int | None, count: int, maximum: int) -> None:
        self._all_reduce_float(address, count, maximum, torch.float64)

    def sum_counts(self) -> None:
        """From now on all_reduce_uint32 is the group's, too. Maxima are below 2^31."""
        self.table.all_reduce_uint32 = dict(Table._fields_)["all_reduce_uint32"](self._guarded(
            lambda address, count, maximum: self._all_reduce_float(address, count, maximum, torch.int32)))

    def _all_gather(self, mine: int | None, size: int, to: int | None, sizes: Any) -> None:
        each = sizes[:self.size]
        parts, own = self._parts(to, each), self._bytes(mine, size)
        if len(set(each)) == 1 and size:
            self._finish("allgather", lambda: [self._group.allgather([parts], [own])])
            return
        parts[self.rank].copy_(own)
        self._finish("broadcast", lambda: (self._started_broadcast(part, root) for root, part in enumerate(parts)
                                           if part.numel()))

    def _started_broadcast(self, data: torch.Tensor, root: int) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank = root
        return self._group.broadcast([data], options)

    def _broadcast(self, address: int | None, size: int, root: int) -> None:
        if size:
            self._finish("broadcast", lambda: [self._started_broadcast(self._bytes(address, size), root)])

    def _send_receive(self, out: int | None, out_size: int, to: int, into: int | None, in_size: int, source: int) -> None:
        gives, gets = self._bytes(out, out_size), self._bytes(into, in_size)
        if to == self.rank == source:
            gets.copy_(gives)
            return
        self._between([(gives, to)], [(gets, source)])

    def _all_to_all(self, out: int | None, out_sizes: Any, into: int | None, in_sizes: Any) -> None:
        gives, gets = self._parts(out, out_sizes[:self.size]), self._parts(into, in_sizes[:self.size])
        gets[self.rank].copy_(gives[self.rank])
        others = [(self.rank + far) % self.size for far in range(1, self.size)]  # each begins with another one
        self._between([(gives[r], r) for r in others], [(gets[r], r) for r in others])

    def _between(self, gives: list[tuple[torch.Tensor, int]], gets: list[tuple[torch.Tensor, int]]) -> None:
        self._finish("send or recv", lambda: (
            start([part], rank, TAG) for start, parts in ((self._group.send, gives), (self._group.recv, gets))
            for part, rank in parts if part.numel()))

    def _finish(self, name: str, start: Callable[[], Any]) -> None:
        """What has begun is waited for in any case, as it writes into the caller's memory."""
        failures: list[BaseException] = []
        under_way: list[Any] = []
        try:
            for work in start():
                under_way.append(work)
        except BaseException as error:
            failures.append(error)
        for work in under_way:
            try:
                if work is not None:
                    work.wait()
            except BaseException as error:
                failures.append(error)
        self._before, self._tensors = self._tensors, []
        if failures:
            first = failures[0]
            failures.clear()  # which refer to this frame
            if not isinstance(first, Exception):
                raise first
            raise RuntimeError(f"gradsieve: the process group's {name}: {first}") from first


class DeviceProcessGroup(ProcessGroup):
    """Of NCCL: in the order of torch's current stream."""

    def __init__(self, group: Any, device: torch.device) -> None:
        self._device = device
        super().__init__(group)
        self.sum_counts()

    def _all_gather(self, mine: int | None, size: int, to: int | None, sizes: Any) -> None:
        each = sizes[:self.size]
        if len(set(each)) != 1 or not size:
            return super()._all_gather(mine, size, to, sizes)
        into, own = self._bytes(to, sum(each)), self._bytes(mine, size)  # a list of tensors would be copied
        self._finish("allgather", lambda: [self._group._allgather_base(into, own)])

    def _all_to_all(self, out: int | None, out_sizes: Any, into: int | None, in_sizes: Any) -> None:
        gives, gets = out_sizes[:self.size], in_sizes[:self.size]
        given, got = self._bytes(out, sum(gives)), self._bytes(into, sum(gets))
        self._finish("alltoall", lambda: [self._group.alltoall_base(got, given, gets, gives, dist.AllToAllOptions())])

    def _around(self, address: int | None, count: int, dtype: torch.dtype) -> torch.Tensor:
        if not count:
            return torch.empty(0, dtype=dtype, device=self._device)
        return torch.as_tensor(_OnDevice(address, count, dtype), device=self._device)


class _OnDevice:
    def __init__(self, address: int | None, count: int, dtype: torch.dtype) -> None:
        kind = {torch.float32: "<f4", torch.float64: "<f8", torch.int32: "<i4", torch.uint8: "|u1"}[dtype]
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": kind, "data": (address, False), "version": 3}
