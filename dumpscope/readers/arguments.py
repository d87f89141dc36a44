"""Arguments of an operator: their positions, and plain numbers among them."""

from __future__ import annotations

import cmath
import math
import struct
import sys

from dumpscope.layouts import plain
from dumpscope.model import MaskPattern, Role, TensorStats
from dumpscope.readers.protocol import MemoryData, TensorRecord

__all__ = ["SCALAR_NOTE", "Positions", "scalar_record"]

SCALAR_NOTE = "scalar"
"""Note of a record that was a Python number: an argument, not a tensor."""

_SCALAR = plain(())
_LARGEST_POSITION = (1 << 31) - 1


class Positions:
    """Give every tensor of an execution a position of its own among its inputs or outputs.

    Parameters
    ----------
    reserved
        How many positions belong to arguments that say themselves where they stand.
    """

    def __init__(self, reserved: int = 0) -> None:
        self._taken: set[int] = set()
        self._next = reserved

    def take(self, wanted: int | None = None) -> int:
        """Return `wanted` if it is free, else the next position that nothing stands at."""
        if wanted is None or wanted in self._taken or not 0 <= wanted <= _LARGEST_POSITION:
            while self._next in self._taken:
                self._next += 1
            wanted = self._next
        self._taken.add(wanted)
        return wanted


def scalar_record(role: Role, index: int, value: float | complex, name: str) -> TensorRecord:
    """Describe a Python number as a tensor of no dimensions, with its statistics."""
    if isinstance(value, complex):
        nan = math.isnan(value.real) or math.isnan(value.imag)
        infinite = not nan and cmath.isinf(value)
        stats = TensorStats(
            count=1,
            nan=int(nan),
            posinf=int(infinite),
            near_limit=None,
            first_bad=_place(nan, infinite),
        )
        packed = struct.pack("<2d", value.real, value.imag)
        dtype = "complex128"
    else:
        stats = _measure(value)
        packed = struct.pack("<d", value)
        dtype = "float64"
    return TensorRecord(
        role,
        index,
        dtype,
        _SCALAR,
        MemoryData(packed),
        stats=stats,
        size_bytes=len(packed),
        name=name,
        notes=(SCALAR_NOTE,),
    )


def _measure(value: float) -> TensorStats:
    nan = math.isnan(value)
    infinite = math.isinf(value)
    finite = None if nan or infinite else value
    limit = abs(value) == sys.float_info.max
    return TensorStats(
        count=1,
        nan=int(nan),
        posinf=int(value == math.inf),
        neginf=int(value == -math.inf),
        saturated=int(limit),
        saturated_negative=int(limit and value < 0),
        min=finite,
        max=finite,
        first_bad=_place(nan, infinite),
        bad_box=_place(nan, infinite),
        mask=MaskPattern(value, 1, None) if value == -math.inf else None,
    )


def _place(nan: bool, infinite: bool) -> tuple[()] | None:
    return () if nan or infinite else None
