"""A thread that exchanges DistributedDataParallel's buckets while the backward pass goes on; on a GPU a stream. And the
exchange of CompressedStep, which has no buckets."""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import functools
import os
import threading
import time
import traceback
import weakref
from typing import Any, Callable, Collection, Iterator, NamedTuple, Sequence

import torch
import torch.distributed as dist

from . import _native, _parameters
from ._native import FORKED, UPDATED, USED, Buckets, Native

PATIENCE = 10.0  #: seconds that the end of a program waits for a bucket that is under way
ENDED = "gradsieve: the interpreter is about to end: no bucket can start"
UNDER_WAY = ("gradsieve: this process was forked while a bucket was under way: the thread that exchanges it is in the "
             "other one")


# ---- what DDP knows of a bucket --------------------------------------------------------------------------------------


class _Use:
    """Which parameters this rank has used since they were exchanged last: what their gradient's function has seen."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._used = used = [False] * len(parameters)

        def seen(number: int, gradient: torch.Tensor | None) -> None:
            used[number] = used[number] or gradient is not None

        self.handles = [_watched(each, lambda gradient, number=number: seen(number, gradient))
                        for number, each in enumerate(parameters)]

    def take(self, number: int) -> bool:
        was, self._used[number] = self._used[number], False
        return was


class _EarlierUpdates:
    """Whether a gradient holds the update of an earlier step when a backward pass adds to it: it is looked at when the
    pass first adds to it after an exchange. What is not zero then is an earlier update, which the pass would add to, and
    every later pass until one finds it zero. Costs nothing where gradients are None, as zero_grad() leaves them, and a
    pass over those that are zero."""

    UNSEEN, NONE, HELD = range(3)

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self._found = found = [self.NONE] * len(parameters)
        self._parameters = [weakref.ref(each) for each in parameters]
        holds = self._holds

        def seen(number: int) -> None:
            if found[number] != _EarlierUpdates.NONE:
                found[number] = holds(number)

        self.handles = [_watched(each, lambda _, number=number: seen(number)) for number, each in enumerate(parameters)]

    def _holds(self, number: int) -> int:
        parameter = self._parameters[number]()
        gradient = None if parameter is None else parameter.grad
        with torch.no_grad():
            return self.HELD if gradient is not None and bool(gradient.ne(0).any()) else self.NONE

    def take(self, number: int) -> bool:
        """Of the gradient that is about to be exchanged. What it is afterwards is an update."""
        found, self._found[number] = self._found[number], self.UNSEEN
        return (self._holds(number) if found == self.UNSEEN else found) == self.HELD


def _watched(parameter: torch.Tensor, seen: Callable[[Any], None]) -> Any:
    if parameter.requires_grad:
        return parameter.register_hook(seen)
    parameter.requires_grad_(True)  # frozen after DDP had wrapped the module, and not for good; torch takes no function
    try:
        return parameter.register_hook(seen)
    finally:
        parameter.requires_grad_(False)


class _Facts(NamedTuple):
    """What Buckets.exchange() must know about a bucket. members: places of its parameters in the model's order."""
    begins: bool
    members: list[int]
    marks: list[int]
    unused_is_left: bool
    fixed: bool


class _Model:
    """Finds out about a DistributedDataParallel's buckets. Called in the backward pass, one call at a time."""

    def __init__(self, model: Any, parameters: Sequence[torch.Tensor], takes_updates_again: bool) -> None:
        """parameters: those with gradients, in the model's order."""
        self._ddp = weakref.ref(model)  # which owns the hook
        self._place = {id(each): number for number, each in enumerate(parameters)}
        self._parameters = [weakref.ref(each) for each in parameters]
        self._earlier = None if takes_updates_again else _EarlierUpdates(parameters)
        self._use: _Use | None = None
        if self._leaves_unused():
            self._watch_use()

    def of(self, bucket: Any, in_backward: bool) -> _Facts:
        """`in_backward`: not so for the buckets of a rank that has joined (torch's Join), which are zero. DDP exchanges
        buckets in the order of their numbers. ValueError if a parameter is none of the model's."""
        members = [self._place.get(id(each), -1) for each in bucket.parameters()]
        if -1 in members:
            raise ValueError("gradsieve: a bucket has a parameter that the model did not have at first")
        left, ddp = self._leaves_unused(), self._ddp()
        if left and self._use is None:  # made static since: what this pass used was not seen
            self._watch_use()
            left = False
        use = self._use if left else None
        marks = [USED if use is None or use.take(each) else 0 for each in members]
        if self._earlier is not None and in_backward:
            marks = [mark + UPDATED * self._earlier.take(each) for mark, each in zip(marks, members)]
        return _Facts(bucket.index() == 0, members, marks, left, left and bool(ddp.static_graph))

    def remove(self) -> None:
        for each in [*(self._use.handles if self._use else ()), *(self._earlier.handles if self._earlier else ())]:
            each.remove()

    def _leaves_unused(self) -> bool:
        """Whether DDP leaves the gradient of a parameter that no rank used as it is."""
        ddp = self._ddp()
        return ddp is not None and bool(ddp.find_unused_parameters or ddp.static_graph)

    def _watch_use(self) -> None:
        self._use = _Use([each for each in (one() for one in self._parameters) if each is not None])


def parameters_of(model: Any) -> list[torch.Tensor]:
    """Those that a DistributedDataParallel has in its buckets. Memory: a gradient's, meanwhile."""
    try:
        return [each for bucket in model.reducer._get_zeros_like_grad_buckets() for each in bucket.parameters()]
    except RuntimeError:  # of sparse gradients
        return [each for each in model.parameters() if each.requires_grad]


def _at_end_of_backward(body: Callable[[], None]) -> bool:
    """body() when the backward pass that calls this is over, behind what others, such as DDP, have asked for there until
    then. What it raises, backward() raises. False, and no call, outside of a backward pass."""
    engine = torch.autograd.Variable._execution_engine
    try:
        engine.queue_callback(lambda: engine.queue_callback(body))
    except RuntimeError:
        return False
    return True


class _Failure:
    """Of a backward pass, the first. It is raised at its end, when DDP is done with it: so DDP stays usable. With
    activation checkpoints passes inside of it end before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.first: BaseException | None = None
        self.last_bucket_has_come = False

    def bucket(self, facts: _Facts | None, is_last: bool) -> None:
        with self.lock:
            if facts is not None and facts.begins:
                self.first, self.last_bucket_has_come = None, False
            self.last_bucket_has_come = self.last_bucket_has_come or is_last

    def keep(self, why: BaseException) -> None:
        with self.lock:
            self.first = self.first or why

    def throw(self) -> None:
        with self.lock:
            if not self.last_bucket_has_come:
                return
            why, self.first = self.first, None
        if why is not None:
            raise why


# ---- on the host -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Job:
    buffer: torch.Tensor  # DDP's memory
    facts: _Facts | None
    done: Callable[[str | None], None]
    failure: BaseException | None  # before the exchange
    throws_later: bool             # not by done()


class _Queue:
    """Buckets of one model, exchanged by a thread one after the other in the order of put(), which DDP keeps the same on
    all ranks. The thread ends with stop()."""

    def __init__(self, buckets: Buckets, model: _Model) -> None:
        self.buckets, self.model, self.failure = buckets, model, _Failure()
        self.changed = threading.Condition()
        self.jobs: collections.deque[_Job] = collections.deque()
        self.busy = False     # a bucket is exchanged
        self.calling = False  # done() is called
        self.ended = False    # no done() is called from now on
        self.stopped = False
        self.is_orphan = False  # stop() was called by the thread
        self.times: list[tuple[int, float, float]] | None = None
        self.thread = threading.Thread(target=self._communicate, name="gradsieve", daemon=True)
        self.thread.start()
        _queues.add(self)

    def put(self, job: _Job) -> None:
        with self.changed:
            if self.ended:
                raise RuntimeError(ENDED)
            self.jobs.append(job)
            self.changed.notify_all()

    def is_idle(self) -> bool:
        return not self.jobs and not self.busy

    def end_calls(self) -> None:
        """For the end of the interpreter, which a thread in Python would abort: no done() is called from then on, and a
        bucket that is under way is waited for a while, for the other ranks' sake."""
        if os.getpid() != self.buckets.process:
            return
        with self.changed:
            self.ended = self.stopped = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.calling and not self.busy, PATIENCE)

    def stop(self) -> None:
        """Waits for the bucket that is under way, if there is one; others are left."""
        self.model.remove()
        if os.getpid() != self.buckets.process:  # the thread is in the parent
            return self.buckets.end()
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        if threading.current_thread() is self.thread:  # which collects garbage, maybe in the middle of an exchange
            self.is_orphan = True
            return
        self.thread.join()
        self.buckets.end()

    def _communicate(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.stopped or self.jobs)
                if self.stopped:
                    break
                job = self.jobs.popleft()
                self.busy = True
            why, begin = job.failure, time.monotonic()
            if why is None:
                why = self._exchange(job)
            end = time.monotonic()
            if why is not None and job.throws_later:
                self.failure.keep(why)
                why = None
            with self.changed:
                if self.times is not None:
                    self.times.append((job.buffer.numel() * job.buffer.element_size(), begin, end))
                self.busy = False
                self.calling = not self.ended
                self.changed.notify_all()
            if self.calling:
                try:
                    job.done(None if why is None else str(why))
                except Exception:  # of what waits for the bucket; the next ones are exchanged
                    traceback.print_exc()
            job = why = None  # type: ignore[assignment]  # before the next: DDP's memory is not kept
            with self.changed:
                self.calling = False
                self.changed.notify_all()
        if self.is_orphan:
            self.buckets.end()

    def _exchange(self, job: _Job) -> BaseException | None:
        try:
            assert job.facts is not None
            self.buckets.exchange(_native.memory_of(job.buffer), *job.facts)
        except BaseException as error:
            return error.with_traceback(None)
        return None


_queues: "weakref.WeakSet[_Queue]" = weakref.WeakSet()


@atexit.register
def _end_calls() -> None:
    for each in list(_queues):
        each.end_calls()


class Hook(Native):
    """Of a DistributedDataParallel on the host. Calls other than start() wait for the buckets that are under way."""

    def __init__(self, *, model: Any, wishes: _native.Wishes, group: dist.ProcessGroup, inside: dist.ProcessGroup | None,
                 parameters: Sequence[torch.Tensor], names: Sequence[str], threads: int) -> None:
        """parameters: those with gradients, in the model's order."""
        layers = [(name, each.numel()) for name, each in zip(names, parameters)]
        buckets = Buckets(wishes, group, inside, layers, threads)
        facts = _Model(model, parameters, _native.takes_updates_again(wishes, False))
        self._queue = _Queue(buckets, facts)
        super().__init__(buckets, self._queue.stop)

    def start(self, bucket: Any, done: Callable[[str | None], None]) -> None:
        """Begins to replace the bucket's buffer by the ranks' mean; done(None, or why it failed) is called by the thread.
        RuntimeError in a child of fork(), which has not the thread, and when the interpreter is about to end."""
        queue = self._queue
        if os.getpid() != self._buckets.process:
            raise RuntimeError(FORKED)
        facts, failure = None, None
        throws_later = _at_end_of_backward(queue.failure.throw)
        try:
            facts = queue.model.of(bucket, throws_later)
        except Exception as error:
            failure = error
        queue.failure.bucket(facts, bucket.is_last())
        queue.put(_Job(bucket.buffer(), facts, done, failure, throws_later))

    def keep_times(self, keep: bool) -> list[tuple[int, float, float]]:
        """From now on times are kept, or no longer: of each bucket its bytes, begin and end, in seconds of
        time.monotonic(). Those that were kept are handed over."""
        with self._between_steps():
            times, self._queue.times = self._queue.times, [] if keep else None
            return times or []

    @contextlib.contextmanager
    def _between_steps(self) -> Iterator[None]:
        queue = self._queue
        if os.getpid() != self._buckets.process:
            if not queue.changed.acquire(blocking=False):
                raise RuntimeError(UNDER_WAY)
            try:
                if not queue.is_idle():
                    raise RuntimeError(UNDER_WAY)
                yield
            finally:
                queue.changed.release()
            return
        with queue.changed:
            queue.changed.wait_for(queue.is_idle)
            yield


# ---- without DDP -----------------------------------------------------------------------------------------------------

MOST = 1 << 30  #: elements that are compressed together


class Changes:
    """What CompressedStep exchanges: a tensor for each parameter, all in flat memory, which an exchange overwrites."""

    def __init__(self, module: torch.nn.Module, named: Sequence[tuple[str, torch.Tensor]], group: dist.ProcessGroup,
                 fragments: int = 1) -> None:
        """named: the parameters; tensors get their shapes, of distributed ones that of this rank's part, values and types,
        but float32 in place of 16 bits. fragments: exchanged apart, of about as many elements each, in order. ValueError
        unless they are on one device, and as many as fragments."""
        self.whole = {name: each.numel() for name, each in named}  #: elements, on all ranks together
        named = [(name, _parameters.local(each)) for name, each in named]
        devices = {str(each.device) for _, each in named}
        if len(devices) > 1:
            raise ValueError(f"gradsieve: the model's parameters are on {' and '.join(sorted(devices))}: put them on one "
                             "device")
        self.module, self.names, self.group = module, [name for name, _ in named], group
        types = [torch.float32 if each.dtype in (torch.float16, torch.bfloat16) else each.dtype for _, each in named]
        self.parts: list[torch.Tensor] = []
        self.flat: list[torch.Tensor] = []
        self.members: list[list[int]] = []  #: of each flat tensor
        self.fragments = _fragments(list(self.whole.values()), fragments)  #: numbers of the parameters of each
        begins = {each[0] for each in self.fragments}
        size = 0
        for number, (_, each) in enumerate(named):
            if number in begins or types[self.members[-1][0]] != types[number] or size + each.numel() > MOST:
                self.members.append([])
                size = 0
            self.members[-1].append(number)
            size += each.numel()
        for members in self.members:
            sizes = [named[i][1].numel() for i in members]
            flat = torch.empty(sum(sizes), dtype=types[members[0]], device=named[0][1].device)
            self.flat.append(flat)
            self.parts += [part.view(named[i][1].shape) for i, part in zip(members, flat.split(sizes))]
        for part, (_, each) in zip(self.parts, named):
            part.copy_(each.detach())


def _fragments(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Runs of consecutive numbers, none of them empty."""
    if count > len(sizes):
        raise ValueError(f"gradsieve: fragments is {count}, and the model has {len(sizes)} trained parameters, of which each "
                         "is in one fragment")
    runs: list[list[int]] = [[]]
    done, total = 0, sum(sizes)
    for number, size in enumerate(sizes):
        left, others = len(sizes) - number, count - len(runs)
        if runs[-1] and others and (left <= others or count * (2 * done + size) >= 2 * len(runs) * total):
            runs.append([])
        runs[-1].append(number)
        done += size
    return runs


class StepHook(Native):
    """Of Changes, on a host or a GPU. Calls other than begin() wait for the exchange that is in flight."""

    def __init__(self, *, changes: Changes, wishes: _native.Wishes, group: dist.ProcessGroup,
                 inside: dist.ProcessGroup | None, threads: int) -> None:
        self._changes, self._device = changes, changes.flat[0].device
        self.begun = False  # the last exchange
        self.stream = _native.stream_on(self._device) if self._device.type == "cuda" else None
        self._under_way: list[_ExchangeThread] = []  # one at most
        buckets = Buckets(wishes, group, inside, [(name, part.numel()) for name, part in
                                                  zip(changes.names, changes.parts)], threads, self.stream)
        super().__init__(buckets, functools.partial(_end, buckets, self._under_way))

    def exchange(self, numbers: Collection[int], unused: Collection[int] = ()) -> None:
        """Replaces the changes of these parameters, which are whole fragments, by the mean over the ranks of what they sent.
        Those of `unused`, the same on all ranks, stay as they are, as does what waits for them."""
        chosen = self._chosen(numbers)
        with self._between_steps():
            _exchange(self._buckets, chosen, unused)

    def begin(self, numbers: Collection[int], unused: Collection[int] = ()) -> None:
        """An exchange() whose caller goes on meanwhile, and leaves the changes alone until wait()."""
        flight = _ExchangeThread(functools.partial(_exchange, self._buckets, self._chosen(numbers), unused))
        if self.stream is None:
            flight.start()
        else:
            self.stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self.stream):
                flight.run()
        self._under_way.append(flight)

    def wait(self, forgets: bool = True) -> None:
        """@throws what the exchange did; unless it `forgets`, the next call does, too"""
        with self._between_steps():
            failure = next((each.failure for each in self._under_way), None)
        if forgets:
            self._under_way.clear()
        try:
            if failure is not None:
                raise failure
        finally:
            failure = None

    def forget(self) -> None:
        """What is in flight is waited for, and what it did counts for nothing."""
        with self._between_steps():
            self._under_way.clear()

    def _chosen(self, numbers: Collection[int]) -> list[tuple[torch.Tensor, list[int]]]:
        self.begun = False
        self._buckets.check_process()
        self.begun = True
        return [(flat, members) for flat, members in zip(self._changes.flat, self._changes.members)
                if members[0] in numbers]

    def _between_steps(self) -> Any:
        if self.stream is not None:
            return _native.in_order(self.stream)
        for each in self._under_way:
            if not each.landed.is_set() and os.getpid() != self._buckets.process:
                raise RuntimeError(UNDER_WAY)
            each.landed.wait()
        return contextlib.nullcontext()


class _ExchangeThread(threading.Thread):
    """An exchange whose caller goes on. The end of the interpreter waits for it, as for any thread that is no daemon."""

    def __init__(self, body: Callable[[], None]) -> None:
        super().__init__(name="gradsieve")
        self._body: Callable[[], None] | None = body
        self.landed = threading.Event()
        self.failure: BaseException | None = None
        self.at_end: Callable[[], None] = lambda: None

    def run(self) -> None:
        try:
            self._body()  # type: ignore[misc]
        except BaseException as error:
            self.failure = error.with_traceback(None)
        self._body = None
        self.landed.set()
        self.at_end()


def _end(buckets: Buckets, under_way: Sequence[_ExchangeThread]) -> None:
    """Frees the buckets behind what is in flight; also called by its thread, which collects garbage."""
    for each in under_way if os.getpid() == buckets.process else ():
        if each.ident == threading.get_ident() and not each.landed.is_set():
            each.at_end = buckets.end
            return
        each.landed.wait()
    buckets.end()


def _exchange(buckets: Buckets, chosen: Sequence[tuple[torch.Tensor, list[int]]], unused: Collection[int] = ()) -> None:
    with torch.autograd.profiler.record_function("gradsieve: exchange"):
        for number, (flat, members) in enumerate(chosen):
            marks = [USED * (i not in unused) for i in members]
            buckets.exchange(_native.memory_of(flat, flat.device), number == 0, members, marks, bool(unused), agreed=True)


# ---- on a GPU --------------------------------------------------------------------------------------------------------


class DeviceHook(Native):
    """start() only enqueues: the backward pass goes on in its stream meanwhile, and what follows `stream` sees the
    averaged bucket. The process group works in stream order, as NCCL's does. Where DDP leaves the gradients of parameters
    that no rank used, start() waits for the ranks to find out which."""

    def __init__(self, *, model: Any, wishes: _native.Wishes, group: dist.ProcessGroup, inside: dist.ProcessGroup | None,
                 parameters: Sequence[torch.Tensor], names: Sequence[str], threads: int) -> None:
        self._device = parameters[0].device
        self._failure = _Failure()
        layers = [(name, each.numel()) for name, each in zip(names, parameters)]
        self.stream = _native.stream_on(self._device)
        with torch.cuda.device(self._device):
            buckets = Buckets(wishes, group, inside, layers, stream=self.stream)
        self._model = _Model(model, parameters, _native.takes_updates_again(wishes, True))
        super().__init__(buckets)

    def start(self, bucket: Any) -> None:
        """What fails in a backward pass is raised at its end."""
        throws_later = _at_end_of_backward(self._failure.throw)
        facts = None
        try:
            try:
                facts = self._model.of(bucket, throws_later)
            finally:
                self._failure.bucket(facts, bucket.is_last())
            self._exchange(bucket.buffer(), facts)
        except Exception as error:
            if not throws_later:
                raise
            self._failure.keep(error)

    def _exchange(self, buffer: torch.Tensor, facts: _Facts) -> None:
        self.stream.wait_stream(torch.cuda.current_stream(self._device))
        buffer.record_stream(self.stream)
        with torch.cuda.stream(self.stream):
            self._buckets.exchange(_native.memory_of(buffer, self._device), *facts)

    def _between_steps(self) -> Any:
        return _native.in_order(self.stream)
