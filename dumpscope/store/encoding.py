"""How records become columns and bytes, and come back exactly.

Text that UTF-8 cannot hold (lone surrogates) is a BLOB of `surrogatepass` UTF-8, an integer of
more than 64 bits a BLOB of sign, length and magnitude, which sorts behind the others by size.
Structured values are JSON in the same UTF-8, in which Python keeps NaN and infinities.

The tensors of an operator are one BLOB, a record each:

| what | bytes |
|---|---|
| code, a sum of the flags in brackets | u8 |
| kind: row of `kinds` with role, index, dtype, shape, … | u32 |
| address | u64 |
| offset (16) | u64 |
| min, max (1) | 2 × f64, or 2 × i64 (2) |
| mean, std, rms, l2, subnormal, zero, near_limit (4) | 4 × f64, 3 × u64 |
| length and JSON of address, offset, digest and all statistics (8) | u32, bytes |

`near_limit` is 0 without (4), `None` with (32). (8) stands for whatever is not clean or does not
fit.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Union

from dumpscope.model import MaskPattern, TensorStats, TensorSummary

__all__ = [
    "AddressColumns",
    "Kind",
    "SqlValue",
    "collect_outputs",
    "bindable",
    "decode_tensors",
    "dump_json",
    "encode_tensor",
    "kind_of",
    "load_json",
    "parse_kind",
    "tensor_kinds",
    "whole_number",
    "whole_text",
]

SqlValue = Union[str, bytes, int, float, None]
"""What a column holds."""

Kind = tuple[Any, ...]
"""What a row of `kinds` holds: role, index, dtype, layout, shape, checked, dumped, unchecked,
size_bytes, missing_bytes, from_statistics, name, notes, number of elements."""

kind_of: Callable[[TensorSummary], Kind] = attrgetter(
    "role", "index", "dtype", "layout", "shape", "checked", "dumped", "unchecked", "size_bytes",
    "missing_bytes", "from_statistics", "name", "notes", "stats.count",
)  # fmt: skip

_stats_of: Callable[[TensorStats], tuple[Any, ...]] = attrgetter(
    "nan", "posinf", "neginf", "saturated", "padding_nonfinite", "saturated_negative",
    "first_bad", "bad_box", "mask", "near_limit", "subnormal", "zero", "mean", "std", "rms",
    "l2", "min", "max",
)  # fmt: skip

_CLEAN = (0, 0, 0, 0, 0, 0, None, None, None)
_NOT_FULL = (None, None, None, None, None, None)

_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))

_EXTREMES, _INTEGERS, _FULL, _JSON, _OFFSET, _NEAR_UNKNOWN = 1, 2, 4, 8, 16, 32


def _layout_of(code: int) -> struct.Struct:
    text = "<BIQ" + ("Q" if code & _OFFSET else "")
    if code & _JSON:
        return struct.Struct(text + "I")
    if code & _EXTREMES:
        text += "qq" if code & _INTEGERS else "dd"
    if code & _FULL:
        text += "4d3Q"
    return struct.Struct(text)


_LAYOUTS = {
    code | more: _layout_of(code | more)
    for code in (0, 1, 3, 5, 7, 8)
    for more in (0, _OFFSET, _NEAR_UNKNOWN, _OFFSET | _NEAR_UNKNOWN)
}


@dataclass(slots=True)
class AddressColumns:
    """Outputs with a device address, as equally long lists.

    `position` numbers the operators in the order of the scan, `lane` tells apart what has
    memory of its own (input path, run and device).
    """

    op_id: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    address: list[int] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    lane: list[int] = field(default_factory=list)


# --- single values ----------------------------------------------------------------------------


def bindable(value: SqlValue) -> SqlValue:
    """Make a value that SQLite cannot hold into a BLOB."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        size = (value.bit_length() + 7) // 8
        sign = b"\x00" if value < 0 else b"\x01"
        return sign + size.to_bytes(4, "big") + abs(value).to_bytes(size, "big")
    return value


def whole_text(value: str | bytes) -> str:
    """Undo `bindable` for a column of text."""
    return value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value


def whole_number(value: int | bytes) -> int:
    """Undo `bindable` for a column of integers."""
    if not isinstance(value, bytes):
        return value
    magnitude = int.from_bytes(value[5:], "big")
    return magnitude if value[0] else -magnitude


def dump_json(value: object) -> bytes:
    """Encode lists, numbers and any text."""
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


def load_json(content: bytes) -> Any:  # noqa: ANN401 - whatever was encoded
    """Undo `dump_json`; tuples come back as lists."""
    return json.loads(content.decode("utf-8", "surrogatepass"))


# --- tensors ----------------------------------------------------------------------------------


def parse_kind(content: bytes) -> Kind:
    """Undo `dump_json` for a kind."""
    values = load_json(content)
    values[4] = tuple(values[4])
    values[12] = tuple(values[12])
    return tuple(values)


def encode_tensor(tensor: TensorSummary, kind: int) -> bytes:
    """Encode what a tensor does not share with others of its kind."""
    stats = _stats_of(tensor.stats)
    if stats[:9] == _CLEAN and tensor.digest is None:
        code, values = _clean_values(stats)
        if code >= 0:
            try:
                if tensor.offset:
                    code |= _OFFSET
                    return _LAYOUTS[code].pack(code, kind, tensor.address, tensor.offset, *values)
                return _LAYOUTS[code].pack(code, kind, tensor.address, *values)
            except struct.error:
                pass
    mask = tensor.stats.mask
    content = dump_json(
        (
            tensor.address,
            tensor.offset,
            tensor.digest,
            *stats[:8],
            None if mask is None else (mask.value, mask.count, mask.digest),
            *stats[9:],
        )
    )
    return _LAYOUTS[_JSON].pack(_JSON, kind, 0, len(content)) + content


def _clean_values(stats: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
    """The code under which clean statistics fit, and their values; -1 when they do not."""
    near_limit, low, high = stats[9], stats[16], stats[17]
    if low is None and high is None:
        code = 0
    elif type(low) is float and type(high) is float:
        code = _EXTREMES
    elif type(low) is int and type(high) is int:
        code = _EXTREMES | _INTEGERS
    else:
        return -1, ()
    if stats[10:16] == _NOT_FULL:
        if near_limit is None:
            code |= _NEAR_UNKNOWN
        elif near_limit:
            return -1, ()
        return code, stats[16:] if code & _EXTREMES else ()
    subnormal, zero, mean, deviation, rms, l2 = stats[10:16]
    if not code or not (type(mean) is type(deviation) is type(rms) is type(l2) is float):
        return -1, ()
    if near_limit is None:
        code |= _NEAR_UNKNOWN
        near_limit = 0
    return code | _FULL, (low, high, mean, deviation, rms, l2, subnormal, zero, near_limit)


def decode_tensors(
    blob: bytes, kind_at: Callable[[int], Kind]
) -> tuple[TensorSummary, ...]:
    """Undo `encode_tensor` for all tensors of an operator."""
    tensors = []
    position = 0
    end = len(blob)
    while position < end:
        code = blob[position]
        layout = _LAYOUTS[code]
        values = layout.unpack_from(blob, position)
        position += layout.size
        kind = kind_at(values[1])
        digest = None
        if code & _JSON:
            content = load_json(blob[position : position + values[-1]])
            position += values[-1]
            address, offset, digest = content[:3]
            stats = _full_stats(kind[13], content[3:])
        else:
            address = values[2]
            offset = 0
            if code & _OFFSET:
                offset = values[3]
                values = values[1:]
            stats = _clean_stats(kind[13], code, values)
        tensors.append(
            TensorSummary(
                kind[0], kind[1], kind[2], kind[3], kind[4], kind[5], kind[6], kind[7], kind[8],
                kind[9], address, offset, kind[10], digest, kind[11], kind[12], stats,
            )
        )  # fmt: skip
    return tuple(tensors)


def _clean_stats(count: int, code: int, values: Sequence[Any]) -> TensorStats:
    near_limit = None if code & _NEAR_UNKNOWN else 0
    if code & _FULL:
        low, high, mean, deviation, rms, l2, subnormal, zero, near = values[3:]
        near_limit = None if near_limit is None else near
        return TensorStats(
            count, 0, 0, 0, 0, near_limit, subnormal, zero, 0, low, high, mean, deviation, rms, l2
        )
    if code & _EXTREMES:
        return TensorStats(count, 0, 0, 0, 0, near_limit, None, None, 0, values[3], values[4])
    return TensorStats(count, 0, 0, 0, 0, near_limit)


def _full_stats(count: int, content: list[Any]) -> TensorStats:
    (
        nan, posinf, neginf, saturated, padding, saturated_negative, first_bad, bad_box, mask,
        near_limit, subnormal, zero, mean, deviation, rms, l2, low, high,
    ) = content  # fmt: skip
    return TensorStats(
        count, nan, posinf, neginf, saturated, near_limit, subnormal, zero, padding, low, high,
        mean, deviation, rms, l2,
        None if first_bad is None else tuple(first_bad),
        None if bad_box is None else tuple((first, last) for first, last in bad_box),
        saturated_negative,
        None if mask is None else MaskPattern(*mask),
    )  # fmt: skip


def collect_outputs(
    columns: AddressColumns,
    op_id: int,
    position: int,
    lane: int,
    blob: bytes,
    kind_at: Callable[[int], Kind],
) -> None:
    """Append an operator's outputs that have an address."""
    start = 0
    end = len(blob)
    while start < end:
        code = blob[start]
        layout = _LAYOUTS[code]
        values = layout.unpack_from(blob, start)
        start += layout.size
        kind = kind_at(values[1])
        address = values[2]
        if code & _JSON:
            if kind[0] == "output":
                address = load_json(blob[start : start + values[-1]])[0]
            start += values[-1]
        if address and kind[0] == "output":
            columns.op_id.append(op_id)
            columns.index.append(kind[1])
            columns.address.append(address)
            columns.size_bytes.append(kind[8])
            columns.position.append(position)
            columns.lane.append(lane)


def tensor_kinds(blob: bytes) -> list[int]:
    """The kinds that an operator's tensors refer to."""
    kinds = []
    start = 0
    while start < len(blob):
        layout = _LAYOUTS[blob[start]]
        values = layout.unpack_from(blob, start)
        start += layout.size + (values[-1] if values[0] & _JSON else 0)
        kinds.append(values[1])
    return kinds
