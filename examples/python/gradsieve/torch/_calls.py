"""Around the calls of a CompressedStep: interrupts that wait, ranks that are missing, closures."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any, Callable, Iterator

import torch

#: Of a message that did not come.
SIGNS = ("timed out", "timeout", "connection closed", "connection reset", "broken pipe")

MISSING = ("gradsieve: a rank has not come to this exchange, or has ended; its own error says why, if there is one. If its "
           "data ended earlier, give all ranks as many batches, as with drop_last=True, or train inside sync.join()")


@contextlib.contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-C counts at the end, as half an exchange would leave parameters that are neither the old ones nor the new. A
    second one counts at once, if Python runs between the two: while a collective waits it does not."""
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[Any, Any]] = []

    def wait(number: Any, frame: Any) -> None:
        came.append((number, frame))
        if len(came) > 1:
            before(number, frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])


@contextlib.contextmanager
def missing_ranks_are_named() -> Iterator[None]:
    """A message that did not come is an error of torch's; adds what may have happened."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        if MISSING.lower() in text or not any(sign in text for sign in SIGNS):
            raise
        raise RuntimeError(f"{MISSING}. {error}") from error


class NotFinite(Exception):
    """Of a second pass."""


class Closure:
    """What an optimizer is given for a closure: with call_ahead() its first call was made before the optimizer steps.
    `loss`: of the first call."""

    def __init__(self, closure: Callable[[], Any]) -> None:
        self._closure = closure
        self._ahead: list[Any] = []
        self.loss: Any = None
        self.check: Callable[[], bool] = lambda: True

    def call_ahead(self) -> None:
        self._ahead = [self._call()]

    def __call__(self) -> Any:
        if self._ahead:
            return self._ahead.pop()
        loss = self._call()
        if not self.check():
            raise NotFinite
        return loss

    def _call(self) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            loss = self._closure()
        self.loss = loss if self.loss is None else self.loss
        return loss
