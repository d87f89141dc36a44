"""File modes that hold for root too: tests of what may not be written run wherever they run."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["run_bound"]

_VERSION_3 = 0x20080522
_OVERRIDES = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, by which root passes modes by."""

Result = TypeVar("Result")


def run_bound(call: Callable[[], Result]) -> Result:
    """Call something where modes bind root as they bind others.

    That is in a thread of its own, because what it gives away it does not get back.
    """
    if os.geteuid() != 0:
        return call()
    with ThreadPoolExecutor(1, initializer=_give_away) as thread:
        return thread.submit(call).result()


def _give_away() -> None:
    """Give away what root has over modes, for this thread; see capset(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    # Effective, permitted and inheritable, of the lower and of the upper 32 capabilities.
    sets = (ctypes.c_uint32 * 6)()
    _check(libc.capget(header, sets))
    for number in range(3):
        sets[number] &= ~_OVERRIDES
    _check(libc.capset(header, sets))


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
