"""Tensor records of arrays whose bytes lie somewhere in a file in one piece."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from dumpscope.errors import CorruptDumpError, TruncatedDumpError
from dumpscope.layouts import Geometry, plain
from dumpscope.model import Role
from dumpscope.readers.npy_header import MAX_DIMS, MAX_ELEMENTS
from dumpscope.readers.protocol import TensorData, TensorRecord
from dumpscope.readers.stored_values import ConvertedData, Stored

__all__ = ["array_geometry", "check_shape", "record_of_array", "truncation_of"]


@lru_cache(maxsize=1024)
def array_geometry(
    shape: tuple[int, ...], layout: str = "ND", fortran_order: bool = False
) -> Geometry:
    """Return the geometry of an array; in Fortran order the axes lie reversed in memory."""
    if not fortran_order or len(shape) < 2:
        return plain(shape, layout)
    stored = shape[::-1]
    merges = tuple((axis,) for axis in reversed(range(len(shape))))
    return Geometry(layout, stored, shape, stored, merges)


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise `CorruptDumpError` for a shape that no array can have."""
    if len(shape) > MAX_DIMS:
        raise CorruptDumpError(f"expected at most {MAX_DIMS} dimensions, found {len(shape)}")
    if any(dim < 0 for dim in shape) or math.prod(d for d in shape if d) > MAX_ELEMENTS:
        raise CorruptDumpError(f"the shape {shape!r:.80} is larger than any memory")


def record_of_array(
    role: Role,
    index: int,
    stored: Stored,
    geometry: Geometry,
    *,
    part: Callable[[int], TensorData],
    available: int,
    offset: int = 0,
    name: str | None = None,
    notes: tuple[str, ...] = (),
) -> TensorRecord:
    """Describe one array.

    Parameters
    ----------
    stored
        What its elements are, and how they are stored.
    part
        Returns the first so many stored bytes.
    available
        How many bytes there are. Fewer than the array takes make it truncated, more are noted.
    offset
        Where they start in the file.

    Returns
    -------
    TensorRecord
        `missing_bytes` counts what the file lacks, in bytes of its dtype where it is stored as
        another one.
    """
    dtype = stored.dtype
    count = geometry.stored_count
    native = stored.convert is None and dtype.bits > 0
    unit = max(1, dtype.bits // 8) if native else stored.itemsize
    needed = dtype.nbytes(count) if native else count * unit
    present = min(needed, available)
    unchecked = stored.unchecked
    missing = 0
    if present < needed:
        missing = needed - present
        present -= present % unit
        unchecked = unchecked or (None if present else "truncated")
        if stored.convert is not None:
            missing = dtype.nbytes(count) - dtype.nbytes(present // unit)
    elif available > needed and unit:
        notes = (*notes, f"surplus_bytes:{available - needed}")
    data = part(present) if unit else None
    if data is not None and stored.convert is not None:
        data = ConvertedData(data, stored.convert, dtype.nbytes(present // unit))
    return TensorRecord(
        role,
        index,
        dtype.name,
        geometry,
        data,
        unchecked=unchecked,
        size_bytes=needed,
        missing_bytes=missing,
        offset=offset,
        name=name,
        notes=(*notes, *stored.notes),
    )


def truncation_of(record: TensorRecord, path: str, end: int) -> TruncatedDumpError | None:
    """Return the fault of a record that lacks bytes; `end` is where the file ends."""
    if not record.missing_bytes:
        return None
    what = f"{record.role} {record.index}" if record.name is None else repr(record.name)[:80]
    return TruncatedDumpError(
        f"expected {record.size_bytes} bytes of {what} from 0x{record.offset:x}, found "
        f"{record.missing_bytes} fewer: the file is cut off, what is there was checked",
        path=path,
        offset=end,
    )
