"""What DDP calls with a bucket. DDP looks at the types of the arguments, which may not be strings therefore."""

from typing import Any, Optional

import torch
import torch.distributed as dist


def host_hook(native: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    finished: torch.futures.Future[Any] = torch.futures.Future()
    buffer = bucket.buffer()
    if not torch.autograd._profiler_enabled():
        native.start(bucket, finished.set_result)
        return finished.then(lambda why: _buffer_or_raise(why.value(), buffer))
    with torch.autograd.profiler.record_function(f"gradsieve: bucket {bucket.index()}") as until_done:
        native.start(bucket, finished.set_result)
        recorded = until_done._call_end_callbacks_on_future(finished)
    return recorded.then(lambda why: _buffer_or_raise(why.value(), buffer))


def device_hook(native: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer()
    with torch.autograd.profiler.record_function(f"gradsieve: bucket {bucket.index()}"):
        native.start(bucket)  # enqueues; what follows its stream sees the average
    finished: torch.futures.Future[Any] = torch.futures.Future(devices=[buffer.device])
    with torch.cuda.stream(native.stream):
        finished.set_result(buffer)
    return finished


def _buffer_or_raise(why: Optional[str], buffer: torch.Tensor) -> torch.Tensor:
    if why is not None:
        raise RuntimeError(why)
    return buffer
