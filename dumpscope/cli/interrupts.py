"""Ctrl-C, at a moment when it does what it should.

Where an interrupt is raised in the middle of an import, NumPy turns it into an ImportError, and a
reader whose import fails counts as broken: the scan would go on without it. What is raised while
an object is being freed is dropped by Python altogether. So both are let to their end first. They
take a second at most; who presses Ctrl-C again does not wait.
"""

from __future__ import annotations

import signal
import weakref
from types import FrameType

__all__ = ["prepare_interrupts"]

_AGAIN_S = 0.05
_MOST_DELAYS = 100
_IMPORT = "<frozen importlib._bootstrap>"
_FREEING = "__del__"


class _Interrupt:
    """Handles the signal, and the alarms by which it is put off."""

    def __init__(self) -> None:
        self._delays = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        is_first = number == signal.SIGALRM or not self._delays
        if is_first and self._delays < _MOST_DELAYS and _is_delicate(frame):
            self._delays += 1
            signal.signal(signal.SIGALRM, self)
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
            return
        self._delays = 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt


def prepare_interrupts() -> None:
    """Handle Ctrl-C in this process, unless who started it wants it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Interrupt())


def _is_delicate(frame: FrameType | None) -> bool:
    """Whether something is being imported, or freed by Python code."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename in (_IMPORT, weakref.__file__) or code.co_name == _FREEING:
            return True
        frame = frame.f_back
    return False
