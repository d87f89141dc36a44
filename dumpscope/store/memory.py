"""Device memory over time: which tensor of which operator lay where, as columns.

A scan may have millions of tensors, so the blobs of `encoding` are not decoded one by one: nearly
all records have a fixed length, which their first byte tells, and those are taken together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dumpscope.records import record
from dumpscope.regexes import regex
from dumpscope.store.encoding import MEMORY_FIELDS, parse_kind, tensor_memory, whole_number
from dumpscope.store.querying import StoreQuerying, select_ops

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from dumpscope.model import Place

    Ints = npt.NDArray[np.int64]

__all__ = ["Memory", "StoreMemory"]

_CHUNK = 20_000
_MOST_ROUNDS = 64
_LARGEST = (1 << 63) - 1
_TOP = (1 << 64) - 1
_TOP_INDEX = (1 << 31) - 1
_MIX = 0x9E3779B97F4A7C15

MemoryLane = tuple[int, str, str, int, int]
"""What has memory and a clock of its own: (source, run, host, process, device)."""


@record(frozen=True, slots=True)
class Memory:
    """All operators, and all tensors with a device address, each as equally long arrays.

    Attributes
    ----------
    lanes
        Those that the columns refer to by number.
    op_id, op_lane, op_position
        Of an operator: its number, its lane, and its position in the order of its lane, the same
        for operators that cannot be told apart in time.
    row
        Of a tensor, the place of its operator in these.
    index, start, end, is_output
        Of a tensor; `end` is exclusive, and the byte after `start` where the size is 0.
    content
        A hash of a tensor's size, minimum and maximum, 0 where these say nothing.
    """

    lanes: Sequence[MemoryLane]
    op_id: Ints
    op_lane: npt.NDArray[np.int32]
    op_position: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    index: npt.NDArray[np.int32]
    start: npt.NDArray[np.uint64]
    end: npt.NDArray[np.uint64]
    is_output: npt.NDArray[np.bool_]
    content: npt.NDArray[np.uint64]


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
            tensors.clear()
            known, which = _number(found["kind"])
            kinds = self._kinds(known)
        table = np.concatenate(ops, axis=1) if ops else np.zeros((6, 0), np.int64)
        ops.clear()
        positions = _positions(table)
        start, size = found["address"].copy(), kinds["size_bytes"][which]
        return Memory(
            list(lanes),
            table[0].copy(),
            table[1].astype(np.int32),
            positions,
            found["row"].copy(),
            kinds["index"][which],
            start,
            start + np.clip(size, np.uint64(1), np.uint64(_TOP) - start),
            kinds["is_output"][which],
            np.where(found["content"], found["content"] ^ size * np.uint64(_MIX), np.uint64(0)),
        )

    def _kinds(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Role, index and size of some kinds, which are given in ascending order."""
        import numpy as np

        fields = [("is_output", "?"), ("index", "i4"), ("size_bytes", "u8")]
        if not len(numbers):
            return np.zeros(0, fields)
        wanted = iter(numbers.tolist())
        next_one = next(wanted)
        described = []
        # Most of those between the first and the last are wanted: kinds are not shared by scans.
        for number, content in self._connection.execute(
            "SELECT kind_id, content FROM kinds WHERE kind_id BETWEEN ? AND ? ORDER BY kind_id",
            (int(numbers[0]), int(numbers[-1])),
        ):
            if number == next_one:
                described.append(_describe_kind(content))
                next_one = next(wanted, None)
        if next_one is not None:
            raise LookupError(f"tensor kind {next_one} is not there")
        return np.array(described, fields)


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


def _positions(table: Ints) -> npt.NDArray[np.int32]:
    """Number the operators by time within all lanes at once; rows as `memory` asks for them."""
    import numpy as np

    _, lane, step, start, task, order = table
    third = np.where((start < 0) | (task < 0), order, task)
    keys = (order, third, start, step, lane)
    sequence = np.lexsort(keys)
    later = np.zeros(len(sequence), dtype=np.int32)
    if len(sequence):
        differs = np.zeros(len(sequence) - 1, dtype=bool)
        for key in keys:
            ordered = key[sequence]
            differs |= ordered[1:] != ordered[:-1]
        later[1:] = np.cumsum(differs)
    positions = np.empty(len(sequence), dtype=np.int32)
    positions[sequence] = later
    return positions


def _record_type() -> np.dtype[Any]:
    import numpy as np

    return np.dtype([("row", "i4"), ("kind", "u4"), ("address", "u8"), ("content", "u8")])


def _read_tensors(blobs: Sequence[bytes], first_row: int) -> npt.NDArray[Any]:
    """The tensors of some operators that have an address, operator by operator."""
    import numpy as np

    data = b"".join(blobs)
    codes = np.frombuffer(data, np.uint8)
    end = np.cumsum(np.fromiter(map(len, blobs), np.int64, len(blobs)))
    at = np.zeros(len(end), np.int64)
    at[1:] = end[:-1]
    rows = np.flatnonzero(at < end)
    at, end = at[rows], end[rows]
    parts = [np.zeros(0, _record_type())]
    slow: list[list[int]] = []
    # The first tensors of all operators at once, then the second ones, and so on.
    for _ in range(_MOST_ROUNDS):
        if not len(rows):
            break
        own_codes = codes[at]
        for code in np.unique(own_codes).tolist():
            which = np.flatnonzero(own_codes == code)
            if code not in MEMORY_FIELDS:
                slow += np.stack([rows, at, end])[:, which].T.tolist()
                at[which] = end[which]
                continue
            layout = np.dtype(MEMORY_FIELDS[code])
            if (at[which] + layout.itemsize > end[which]).any():
                raise ValueError("a tensor is cut off")
            begins = len(data) - layout.itemsize + 1
            taken = np.ndarray((begins,), layout, data, 0, (1,))[at[which]]
            parts.append(_make_records(first_row + rows[which], taken))
            at[which] += layout.itemsize
        left = at < end
        rows, at, end = rows[left], at[left], end[left]
    slow += np.stack([rows, at, end]).T.tolist()
    others = [
        (first_row + row, *values)
        for row, begin, stop in slow
        for values in tensor_memory(data[begin:stop])
        if 0 < values[1] < 1 << 64
    ]
    parts.append(_make_records(*_columns_of(others)))
    found = np.concatenate(parts)
    found = found[found["address"] != 0]
    ordered: npt.NDArray[Any] = found[np.argsort(found["row"], kind="stable")]
    return ordered


def _columns_of(others: Sequence[tuple[Any, ...]]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows, and what `tensor_memory` tells."""
    import numpy as np

    fields = [("kind", "u4"), ("address", "u8"), ("low", "f8"), ("high", "f8")]
    taken = np.array([values[1:] for values in others], fields)
    return np.array([values[0] for values in others], np.int64), taken


def _make_records(rows: npt.NDArray[Any], taken: npt.NDArray[Any]) -> npt.NDArray[Any]:
    import numpy as np

    found = np.zeros(len(rows), _record_type())
    found["row"] = rows
    for name in ("kind", "address"):
        found[name] = taken[name]
    if "low" in (taken.dtype.names or ()):
        low, high = taken["low"].astype(np.float64), taken["high"].astype(np.float64)
        found["content"] = np.where(low < high, _mix(low, high), np.uint64(0))
    return found


def _number(values: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The distinct values, ascending, and of each value which of them it is."""
    import numpy as np

    if not len(values):
        return values, np.zeros(0, np.int64)
    lowest = int(values.min())
    span = int(values.max()) - lowest + 1
    if span > 4 * len(values):
        return np.unique(values, return_inverse=True)
    # Kinds are numbered one after the other: no need to sort them.
    shifted = values - np.uint32(lowest)
    there = np.zeros(span, dtype=bool)
    there[shifted] = True
    return np.flatnonzero(there) + lowest, (np.cumsum(there, dtype=np.int32) - 1)[shifted]


def _mix(low: npt.NDArray[np.float64], high: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    """Hash two numbers, never to 0."""
    import numpy as np

    factor = np.uint64(_MIX)
    mixed = low.view(np.uint64) * factor
    mixed = (mixed ^ mixed >> np.uint64(29)) + high.view(np.uint64)
    hashed: npt.NDArray[np.uint64] = mixed * factor ^ mixed >> np.uint64(32) | np.uint64(1)
    return hashed


_HEAD = regex(
    rb'\[\["(?:(out)|in)put",(\d{1,9}),"[^"\\]*","[^"\\]*",\[[\d,]*\],'
    rb'(?:true|false),(?:true|false),(?:null|"[^"\\]*"),(\d{1,18}),'
)
"""Role, index and size in bytes at the start of a kind that was written as usual."""


def _describe_kind(content: bytes) -> tuple[bool, int, int]:
    match = _HEAD.match(content)
    if match is not None:
        return match[1] is not None, int(match[2]), int(match[3])
    head = parse_kind(content)[0]
    return head[0] == "output", min(head[1], _TOP_INDEX), min(max(head[8], 0), _TOP)
