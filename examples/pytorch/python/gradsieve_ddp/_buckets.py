"""What DDP calls with a bucket. DDP looks at the types of the arguments, which may not be strings therefore."""

import atexit
import weakref
from typing import Any, Optional

import torch
import torch.distributed as dist

_with_threads: "weakref.WeakSet[Any]" = weakref.WeakSet()  #: native hooks whose thread calls Python


def end_with_interpreter(native: Any) -> None:
    """A thread that wants Python's lock after the interpreter's end would abort the process: before it, the hook's
    thread stops calling Python."""
    _with_threads.add(native)


@atexit.register
def _end_calls() -> None:
    for each in list(_with_threads):
        each.end_calls()


def host_hook(native: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    finished: torch.futures.Future[Any] = torch.futures.Future()
    buffer = bucket.buffer()
    native.start(bucket, finished.set_result)
    return finished.then(lambda why: _buffer_or_raise(why.value(), buffer))


def device_hook(native: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer()
    native.start(bucket)  # enqueues; what follows its stream sees the average
    finished: torch.futures.Future[Any] = torch.futures.Future(devices=[buffer.device])
    with torch.cuda.stream(torch.cuda.ExternalStream(native.stream, buffer.device)):
        finished.set_result(buffer)
    return finished


def _buffer_or_raise(why: Optional[str], buffer: torch.Tensor) -> torch.Tensor:
    if why is not None:
        raise RuntimeError(why)
    return buffer
