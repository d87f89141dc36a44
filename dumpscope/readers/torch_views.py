"""Tensors as torch saves them: views of a storage, and how to stream what a view shows.

===========================================  =====================================================
view                                         what is streamed
===========================================  =====================================================
contiguous                                   a slice of the file
transposed, nothing left out                 a slice of the file; the geometry knows the axes
small, of any strides                        its elements in logical order, gathered in memory
rows of a larger tensor                      its rows, one after the other
expanded (strides of 0), large               what is repeated, once; note `expanded`
anything else that is large                  the region of the storage that it lies in; note
                                             `storage_region`: elements between its own count too
===========================================  =====================================================

So no number in the file makes memory: a view of a terabyte over four bytes costs four bytes.
Views that share a storage are read again for each of them, up to a multiple of the file's size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dumpscope.dtypes import Dtype
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.layouts import Geometry, plain
from dumpscope.model import Role
from dumpscope.readers.array_records import record_of_array
from dumpscope.readers.protocol import FileSlice, MemoryData, TensorData, TensorRecord
from dumpscope.readers.stored_values import Stored
from dumpscope.readers.torch_names import PickledTensor
from dumpscope.readers.torch_storage import SavedObject, StorageBytes, torch_dtype
from dumpscope.readers.zip_members import Member, inflate
from dumpscope.records import record
from dumpscope.source import BLOCK_BYTES, DumpSource

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ViewReader"]

_GATHERED_BYTES = 32 << 20
"""A view and its region up to this size are put in order in memory."""

_MOST_AXES = 32
_SHORTEST_RUN_BYTES = 4096
_FREE_BYTES = 1 << 30
_TIMES_FILE_SIZE = 16


class _Rows(NamedTuple):
    """Runs of `nbytes` bytes at every combination of `counts` and `steps` (in bytes)."""

    nbytes: int
    counts: tuple[int, ...]
    steps: tuple[int, ...]


class _Plan(NamedTuple):
    """How to stream a view. `rows` is set for rows, `gathered` for elements put in order."""

    geometry: Geometry
    nbytes: int
    notes: tuple[str, ...] = ()
    gathered: bool = False
    rows: _Rows | None = None


class ViewReader:
    """Make records of the tensors of one file.

    Parameters
    ----------
    saved
        What the file holds.
    source
        Where the records read their bytes from when they are asked for them.

    Attributes
    ----------
    faults
        What could not be read so far.
    """

    def __init__(self, saved: SavedObject, source: DumpSource) -> None:
        self._saved = saved
        self._source = source
        self._budget = max(_FREE_BYTES, _TIMES_FILE_SIZE * source.size)
        self.faults: list[DumpReadError] = []

    def record(self, tensor: PickledTensor, role: Role, index: int, name: str) -> TensorRecord:
        """Describe one tensor. What cannot be read is unchecked, and a fault."""
        dtype = torch_dtype(tensor.dtype)
        shape = tensor.shape
        if dtype.packed and shape:
            shape = (*shape[:-1], shape[-1] * 8 // dtype.bits)
        unchecked = None
        if tensor.storage is None:
            unchecked = "no_values"
        elif not math.prod(shape):
            return TensorRecord(role, index, dtype.name, plain(shape), MemoryData(b""), name=name)
        elif not dtype.decodable:
            unchecked = "unsupported_dtype"
        else:
            try:
                return self._record(tensor, dtype, role, index, name)
            except DumpReadError as error:
                error.path = error.path or self._source.file.relative
                self.faults.append(error)
                unchecked = "unreadable"
        return TensorRecord(role, index, dtype.name, plain(shape), unchecked=unchecked, name=name)

    def _record(
        self, tensor: PickledTensor, dtype: Dtype, role: Role, index: int, name: str
    ) -> TensorRecord:
        assert tensor.storage is not None
        storage = self._saved.find(tensor.storage)
        stored = _stored_as(dtype, self._saved.big_endian)
        itemsize = stored.itemsize
        start = tensor.offset * itemsize
        region = _extent(tensor.shape, tensor.strides) * itemsize
        available = min(region, max(0, storage.nbytes - start))
        plan = _plan(tensor.shape, tensor.strides, itemsize, region, storage.member is not None)
        streams_region = not plan.gathered and plan.rows is None
        if available < region:
            fault = TruncatedDumpError(
                f"expected {region} bytes of {name or role} in its storage, found {available}",
                path=self._source.file.relative,
                offset=storage.offset,
            )
            if not streams_region or "storage_region" in plan.notes:
                raise fault
            self.faults.append(fault)
        self._charge((start if storage.member else 0) + max(plan.nbytes, region))

        def part(nbytes: int) -> TensorData:
            if plan.rows is not None:
                return _RowsView(self._source, storage.offset + start, plan.nbytes, plan.rows)
            if plan.gathered:
                whole = _slice(self._source, storage, start, region)
                return _GatheredView(whole, itemsize, tensor.shape, tensor.strides, plan.nbytes)
            return _slice(self._source, storage, start, nbytes)

        if dtype.packed:
            return _packed_record(role, index, dtype, plan, part(available), name)
        return record_of_array(
            role,
            index,
            stored,
            plan.geometry,
            part=part,
            available=available if streams_region else plan.nbytes,
            offset=storage.offset if storage.member else storage.offset + start,
            name=name,
            notes=plan.notes,
        )

    def _charge(self, nbytes: int) -> None:
        self._budget -= nbytes
        if self._budget < 0:
            raise CorruptDumpError(
                "its tensors show the same storages again and again: together they are more than "
                f"{_TIMES_FILE_SIZE} times the size of the file, and the rest is not read"
            )


@lru_cache(maxsize=1024)
def _plan(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    region: int,
    deflated: bool,
) -> _Plan:
    """Choose how to stream a view that lies in `region` bytes of its storage."""
    geometry = _dense_geometry(shape, strides)
    if geometry is not None:
        return _Plan(geometry, region)
    nbytes = math.prod(shape) * itemsize
    if max(nbytes, region) <= _GATHERED_BYTES and len(shape) <= _MOST_AXES:
        return _Plan(plain(shape), nbytes, gathered=True)
    notes: tuple[str, ...] = ()
    if 0 in strides:
        notes = ("expanded:" + "x".join(map(str, shape)),)
        shape = tuple(n if s else 1 for n, s in zip(shape, strides, strict=True))
        geometry = _dense_geometry(shape, strides)
        if geometry is not None:
            return _Plan(geometry, region, notes)
    rows = None if deflated else _rows_of(shape, strides, itemsize)
    if rows is not None:
        return _Plan(plain(shape), math.prod(shape) * itemsize, notes, rows=rows)
    return _Plan(plain((region // itemsize,)), region, (*notes, "storage_region"))


@lru_cache(maxsize=1024)
def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return how far a view reaches, in elements from its first one."""
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))


@lru_cache(maxsize=1024)
def _dense_geometry(shape: tuple[int, ...], strides: tuple[int, ...]) -> Geometry | None:
    """Return the geometry of a view that shows a piece of memory whole, in any order of axes."""
    axes = sorted(range(len(shape)), key=lambda axis: (shape[axis] != 1, -strides[axis], axis))
    expected = 1
    for axis in reversed(axes):
        if shape[axis] == 1:
            break
        if strides[axis] != expected:
            return None
        expected *= shape[axis]
    if [axis for axis in axes if shape[axis] != 1] == [a for a, n in enumerate(shape) if n != 1]:
        return plain(shape)
    stored = tuple(shape[axis] for axis in axes)
    merges = tuple((axes.index(axis),) for axis in range(len(shape)))
    return Geometry("ND", stored, shape, stored, merges)


def _rows_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> _Rows | None:
    """Find the runs that a view consists of, if they are long and overlap nowhere."""
    run = 1
    axis = len(shape)
    while axis and (shape[axis - 1] == 1 or strides[axis - 1] == run):
        axis -= 1
        run *= shape[axis]
    nearest = run
    for n, stride in zip(reversed(shape[:axis]), reversed(strides[:axis]), strict=True):
        if n > 1 and stride < nearest:
            return None
        nearest = max(nearest, n * stride)
    if run * itemsize < _SHORTEST_RUN_BYTES:
        return None
    steps = tuple(stride * itemsize for stride in strides[:axis])
    return _Rows(run * itemsize, shape[:axis], steps)


@lru_cache(maxsize=64)
def _stored_as(dtype: Dtype, big_endian: bool) -> Stored:
    """Say how elements are stored: one of a packed type in each byte of a few."""
    itemsize = max(1, dtype.bits // 8)
    part = itemsize // 2 if dtype.kind == "complex" else itemsize
    if not big_endian or part == 1:
        return Stored(dtype, itemsize)

    def swap(block: memoryview) -> npt.NDArray[Any]:
        swapped: npt.NDArray[Any] = np.frombuffer(block, f"u{part}").byteswap()
        return swapped

    return Stored(dtype, itemsize, swap)


def _packed_record(
    role: Role, index: int, dtype: Dtype, plan: _Plan, data: TensorData, name: str
) -> TensorRecord:
    """Describe a tensor of several elements a byte: torch counts bytes along the last axis."""
    shape = plan.geometry.shape
    per_byte = 8 // dtype.bits
    wide = (*shape[:-1], shape[-1] * per_byte) if shape else (per_byte,)
    if plan.geometry.blocked:
        wide = (plan.geometry.stored_count * per_byte,)
    missing = plan.nbytes - data.nbytes
    return TensorRecord(
        role,
        index,
        dtype.name,
        plain(wide),
        data,
        size_bytes=plan.nbytes,
        missing_bytes=missing,
        name=name,
        notes=plan.notes,
    )


# --- the bytes -----------------------------------------------------------------------------------


def _slice(source: DumpSource, storage: StorageBytes, start: int, nbytes: int) -> TensorData:
    if storage.member is None:
        return FileSlice(source, storage.offset + start, nbytes)
    return _InflatedSlice(source, storage.member, storage.offset, start, nbytes)


@record(frozen=True, slots=True)
class _InflatedSlice:
    """Bytes of a deflated storage."""

    source: DumpSource
    member: Member
    offset: int
    skipped: int
    nbytes: int

    def blocks(self) -> Iterator[memoryview]:
        parts = inflate(self.source, self.member, self.offset, self.skipped, self.nbytes)
        return _regroup(parts, self.nbytes)


@record(frozen=True, slots=True)
class _RowsView:
    """Rows of a larger tensor."""

    source: DumpSource
    offset: int
    nbytes: int
    rows: _Rows

    def blocks(self) -> Iterator[memoryview]:
        return _regroup(self._runs(), self.nbytes)

    def _runs(self) -> Iterator[memoryview]:
        for place in product(*map(range, self.rows.counts)):
            step = sum(i * size for i, size in zip(place, self.rows.steps, strict=True))
            yield from self.source.blocks(self.offset + step, self.rows.nbytes)


@record(frozen=True, slots=True)
class _GatheredView:
    """Elements of a small view in logical order."""

    region: TensorData
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int

    def blocks(self) -> Iterator[memoryview]:
        # A block lasts until the next one: join would collect them all before it copies.
        raw = b"".join(bytes(block) for block in self.region.blocks())
        elements = np.frombuffer(raw, f"V{self.itemsize}")
        # The region reaches from the view's first element to its last one, so no stride leaves it.
        view = np.lib.stride_tricks.as_strided(
            elements, self.shape, [stride * self.itemsize for stride in self.strides]
        )
        ordered = np.ascontiguousarray(view).reshape(-1).view(np.uint8)
        for start in range(0, len(ordered), BLOCK_BYTES):
            yield ordered[start : start + BLOCK_BYTES].data


def _regroup(parts: Iterable[bytes | memoryview], nbytes: int) -> Iterator[memoryview]:
    """Yield the same bytes in blocks of the usual size, so that no element is torn apart."""
    buffer = bytearray(min(nbytes, BLOCK_BYTES))
    filled = 0
    for part in parts:
        rest = memoryview(part)
        while rest:
            count = min(len(rest), len(buffer) - filled)
            buffer[filled : filled + count] = rest[:count]
            filled += count
            rest = rest[count:]
            if filled == len(buffer):
                yield memoryview(buffer)
                filled = 0
    if filled:
        yield memoryview(buffer)[:filled]
