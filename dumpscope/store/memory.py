"""Device memory over time: which tensor of which operator lay where, as columns.

A scan may have millions of tensors, so the blobs of `encoding` are not decoded one by one: what a
screening writes for a float tensor is a record of fixed length, and those are taken together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dumpscope.store.encoding import (
    USUAL_CODE,
    USUAL_FIELDS,
    parse_kind,
    tensor_memory,
    whole_number,
)
from dumpscope.store.querying import StoreQuerying, select_ops

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dumpscope.model import Place

    Ints = npt.NDArray[np.int64]

__all__ = ["Memory", "StoreMemory"]

_CHUNK = 20_000
_LARGEST = (1 << 63) - 1

MemoryLane = tuple[int, str, str, int, int]
"""What has memory and a clock of its own: (source, run, host, process, device)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """All tensors with a device address, as equally long arrays, and all operators.

    Attributes
    ----------
    lanes
        Those that the columns refer to by number.
    op_id, op_lane, op_position
        Every operator, ascending by number; its position in the order of its lane. Operators
        that cannot be told apart in time have the same.
    row
        Of a tensor, the operator's row.
    index, address, size_bytes, is_output
        Of a tensor.
    kind
        Number of what the tensor has in common with others (type, shape, what is wrong with it).
    low, high
        Its smallest and largest value, NaN where they are not known.
    """

    lanes: Sequence[MemoryLane]
    op_id: Ints
    op_lane: Ints
    op_position: Ints
    row: Ints
    index: Ints
    address: npt.NDArray[np.uint64]
    size_bytes: npt.NDArray[np.uint64]
    is_output: npt.NDArray[np.bool_]
    kind: Ints
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]


class StoreMemory(StoreQuerying):
    """The part of `Store` that tells what lay where in device memory."""

    def memory(self, scan_id: str) -> Memory:
        """Collect the tensors of a scan that have a device address."""
        import numpy as np

        number = self._scan_no(scan_id)
        places = self._places()
        lanes: dict[MemoryLane, int] = {}
        lane_of: dict[tuple[Any, Any], int] = {}
        ops: list[npt.NDArray[Any]] = []
        tensors: list[npt.NDArray[Any]] = []
        row = 0
        statement = select_ops(
            "o.op_id, o.place_id, o.device, o.step, o.start_ns, o.task_id, o.order_no, o.tensors"
        )
        with self._read() as connection:
            rows = connection.execute(statement, {"scan": number})
            while chunk := rows.fetchmany(_CHUNK):
                columns = list(zip(*chunk, strict=True))
                for pair in set(zip(columns[1], columns[2], strict=True)) - lane_of.keys():
                    lane = _lane(places[pair[0]], pair[1])
                    lane_of[pair] = lanes.setdefault(lane, len(lanes))
                lane_column = [lane_of[pair] for pair in zip(columns[1], columns[2], strict=True)]
                numbers = [columns[0], lane_column, *columns[3:7]]
                ops.append(np.array([_as_int64(column) for column in numbers]))
                tensors.append(_read_tensors(columns[7], row))
                row += len(chunk)
            found = np.concatenate(tensors) if tensors else np.zeros(0, _record_type())
            known, which = np.unique(found["kind"], return_inverse=True)
            kinds = self._kinds(known)
        table = np.concatenate(ops, axis=1) if ops else np.zeros((6, 0), np.int64)
        return Memory(
            list(lanes),
            table[0],
            table[1],
            _positions(table),
            found["row"],
            kinds["index"][which],
            found["address"],
            kinds["size_bytes"][which],
            kinds["is_output"][which],
            found["kind"].astype(np.int64),
            found["low"],
            found["high"],
        )

    def _kinds(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Role, index and size of some kinds, which are given in ascending order."""
        import numpy as np

        kinds = np.zeros(len(numbers), [("is_output", "?"), ("index", "i8"), ("size_bytes", "u8")])
        if not len(numbers):
            return kinds
        at = {number: row for row, number in enumerate(numbers.tolist())}
        # Most of those between the first and the last are wanted: kinds are not shared by scans.
        for number, content in self._connection.execute(
            "SELECT kind_id, content FROM kinds WHERE kind_id BETWEEN ? AND ?",
            (int(numbers[0]), int(numbers[-1])),
        ):
            row = at.pop(number, None)
            if row is not None:
                kinds[row] = _describe_kind(content)
        if at:
            raise LookupError(f"tensor kind {min(at)} is not there")
        return kinds


def _lane(place: Place, device: Any) -> MemoryLane:
    process = place.process if place.global_rank is None else None
    return (
        place.source,
        place.run or "",
        place.host or "",
        -1 if process is None else process,
        -1 if device is None else whole_number(device),
    )


def _as_int64(values: Sequence[Any]) -> Ints:
    """A column of whole numbers; -1 where one is missing."""
    import numpy as np

    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError):  # ValueError: a number of more than 64 bits, in bytes
        known = (-1 if value is None else whole_number(value) for value in values)
        return np.array([max(-_LARGEST, min(value, _LARGEST)) for value in known], np.int64)


def _positions(table: Ints) -> Ints:
    """Number the operators by time within all lanes at once; rows as `memory` asks for them."""
    import numpy as np

    _, lane, step, start, task, order = table
    third = np.where((start < 0) | (task < 0), order, task)
    keys = (order, third, start, step, lane)
    sequence = np.lexsort(keys)
    later = np.zeros(len(sequence), dtype=np.int64)
    if len(sequence):
        differs = np.zeros(len(sequence) - 1, dtype=bool)
        for key in keys:
            ordered = key[sequence]
            differs |= ordered[1:] != ordered[:-1]
        later[1:] = np.cumsum(differs)
    positions = np.empty(len(sequence), dtype=np.int64)
    positions[sequence] = later
    return positions


def _record_type() -> np.dtype[Any]:
    import numpy as np

    return np.dtype(
        [("row", "i8"), ("kind", "u4"), ("address", "u8"), ("low", "f8"), ("high", "f8")]
    )


def _read_tensors(blobs: Sequence[bytes], first_row: int) -> npt.NDArray[Any]:
    """The tensors of some operators that have an address."""
    import numpy as np

    usual = np.dtype(list(USUAL_FIELDS))
    lengths = np.fromiter(map(len, blobs), np.int64, len(blobs))
    rows = np.flatnonzero(lengths % usual.itemsize == 0)
    counts = lengths[rows] // usual.itemsize
    taken = np.frombuffer(b"".join([blobs[row] for row in rows.tolist()]), usual)
    row_of = np.repeat(rows, counts)
    # From the first record of another form on nothing can be told: such a blob is read slowly.
    other = np.zeros(len(blobs), dtype=bool)
    other[row_of[taken["code"] != USUAL_CODE]] = True
    kept = ~other[row_of]
    other[lengths % usual.itemsize != 0] = True
    unusual = [
        (first_row + row, *values)
        for row in np.flatnonzero(other).tolist()
        for values in tensor_memory(blobs[row])
        if 0 < values[1] < 1 << 64
    ]
    found = np.zeros(int(kept.sum()) + len(unusual), _record_type())
    found["row"][: len(found) - len(unusual)] = row_of[kept] + first_row
    for name in ("kind", "address", "low", "high"):
        found[name][: len(found) - len(unusual)] = taken[name][kept]
    if unusual:
        found[len(found) - len(unusual) :] = unusual
    addressed: npt.NDArray[Any] = found[found["address"] != 0]
    return addressed


_HEAD = re.compile(
    rb'\[\["(?:(out)|in)put",(\d{1,9}),"[^"\\]*","[^"\\]*",\[[\d,]*\],'
    rb'(?:true|false),(?:true|false),(?:null|"[^"\\]*"),(\d{1,18}),'
)
"""Role, index and size in bytes at the start of a kind that was written as usual."""


def _describe_kind(content: bytes) -> tuple[bool, int, int]:
    match = _HEAD.match(content)
    if match is not None:
        return match[1] is not None, int(match[2]), int(match[3])
    head = parse_kind(content)[0]
    return head[0] == "output", head[1], min(max(head[8], 0), (1 << 64) - 1)
