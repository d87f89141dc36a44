"""How records become columns and bytes, and come back exactly.

Text that UTF-8 cannot hold (lone surrogates) is a BLOB of `surrogatepass` UTF-8, an integer of
more than 64 bits a BLOB of sign, length and magnitude, which sorts behind the others by size.
Structured values are JSON in the same UTF-8, in which Python keeps NaN and infinities.

A tensor is its kind, a row of `kinds` that holds all that many tensors have in common (role,
dtype, shape, and that there is nothing wrong with it), and what remains. The tensors of an
operator are one BLOB, a record each:

| what | bytes |
|---|---|
| code, a sum of the flags in brackets | u8 |
| kind | u32 |
| address | u64 |
| offset (16) | u64 |
| min, max (1) | 2 × f64, or 2 × i64 (2) |
| mean, std, rms, l2, subnormal, zero (4) | 4 × f64, 2 × u64 |
| length, and JSON of all of these, for what does not fit (8; address is 0) | u32, bytes |
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from sys import intern
from typing import Any, Union

from dumpscope.model import MaskPattern, TensorStats, TensorSummary

__all__ = [
    "Kind",
    "MEMORY_FIELDS",
    "SqlValue",
    "bindable",
    "decode_tensors",
    "dump_json",
    "encode_tensor",
    "kind_head",
    "kind_stats",
    "load_json",
    "parse_kind",
    "tensor_kinds",
    "tensor_memory",
    "whole_number",
    "whole_text",
]

SqlValue = Union[str, bytes, int, float, None]
"""What a column holds."""

Kind = tuple[tuple[Any, ...], tuple[Any, ...]]
"""What a row of `kinds` holds: the fields of `kind_head` and of `kind_stats`."""

kind_head: Callable[[TensorSummary], tuple[Any, ...]] = attrgetter(
    "role", "index", "dtype", "layout", "shape", "checked", "dumped", "unchecked", "size_bytes",
    "missing_bytes", "from_statistics", "digest", "name", "notes",
)  # fmt: skip
kind_stats: Callable[[TensorStats], tuple[Any, ...]] = attrgetter(
    "count", "nan", "posinf", "neginf", "saturated", "near_limit", "padding_nonfinite",
    "first_bad", "bad_box", "saturated_negative",
)  # fmt: skip
_full_stats: Callable[[TensorStats], tuple[Any, ...]] = attrgetter(
    "mean", "std", "rms", "l2", "subnormal", "zero"
)
_NOT_FULL = (None, None, None, None, None, None)
_FULL_TYPES = [float, float, float, float, int, int]

_SHARED_TEXTS = (0, 2, 3)
_scan_once = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))

_EXTREMES, _INTEGERS, _FULL, _JSON, _OFFSET = 1, 2, 4, 8, 16


def _layout_of(code: int) -> struct.Struct:
    text = "<BIQ" + ("Q" if code & _OFFSET else "")
    if code & _JSON:
        return struct.Struct(text + "I")
    if code & _EXTREMES:
        text += "qq" if code & _INTEGERS else "dd"
    if code & _FULL:
        text += "4d2Q"
    return struct.Struct(text)


_LAYOUTS = {
    code | more: _layout_of(code | more) for code in (0, 1, 3, 5, 7, 8) for more in (0, _OFFSET)
}


def _fields_of(code: int) -> Any:
    """Where kind, address and extremes of a record stand, as numpy is told it."""
    first = 21 if code & _OFFSET else 13
    fields = [("kind", "<u4", 1), ("address", "<u8", 5)]
    if code & _EXTREMES:
        extreme = "<i8" if code & _INTEGERS else "<f8"
        fields += [("low", extreme, first), ("high", extreme, first + 8)]
    names, formats, offsets = (list(column) for column in zip(*fields, strict=True))
    size = _LAYOUTS[code].size
    return {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}


MEMORY_FIELDS = {code: _fields_of(code) for code in _LAYOUTS if not code & _JSON}
"""By the first byte of a record, for those that are equally long."""

_pack_usual = _LAYOUTS[_EXTREMES].pack
"""What a clean tensor of a screening is: kind, address, two floats."""


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


def load_json(content: bytes) -> Any:
    """Undo `dump_json`; tuples come back as lists."""
    return json.loads(str(content, "utf-8", "surrogatepass"))


# --- tensors ----------------------------------------------------------------------------------


def parse_kind(content: bytes) -> Kind:
    """Undo `dump_json` for a kind."""
    try:
        # Without looking for white space around it, which takes as long again.
        (head, stats), _ = _scan_once(str(content, "utf-8", "surrogatepass"), 0)
    except StopIteration:
        raise ValueError("a kind of tensors is cut off") from None
    for position in _SHARED_TEXTS:
        head[position] = intern(head[position])
    head[4] = tuple(head[4])
    head[13] = tuple(head[13])
    if stats[7] is not None:
        stats[7] = tuple(stats[7])
    if stats[8] is not None:
        stats[8] = tuple((first, last) for first, last in stats[8])
    return tuple(head), tuple(stats)


def encode_tensor(tensor: TensorSummary, kind: int) -> bytes:
    """Encode what a tensor does not share with others of its kind."""
    stats = tensor.stats
    low = stats.min
    high = stats.max
    full = _full_stats(stats)
    try:
        if (
            type(low) is float
            and type(high) is float
            and full == _NOT_FULL
            and not tensor.offset
            and stats.mask is None
        ):
            return _pack_usual(_EXTREMES, kind, tensor.address, low, high)
        return _encode_other(tensor, kind, low, high, full)
    except struct.error:
        return _encode_any(tensor, kind)


def _encode_other(
    tensor: TensorSummary, kind: int, low: object, high: object, full: tuple[Any, ...]
) -> bytes:
    values: tuple[Any, ...] = (low, high)
    if type(low) is float and type(high) is float:
        code = _EXTREMES
    elif type(low) is int and type(high) is int:
        code = _EXTREMES | _INTEGERS
    elif low is None and high is None and full == _NOT_FULL:
        code, values = 0, ()
    else:
        return _encode_any(tensor, kind)
    if full != _NOT_FULL:
        if list(map(type, full)) != _FULL_TYPES:
            return _encode_any(tensor, kind)
        code |= _FULL
        values += full
    if tensor.stats.mask is not None:
        return _encode_any(tensor, kind)
    if tensor.offset:
        code |= _OFFSET
        values = (tensor.offset, *values)
    return _LAYOUTS[code].pack(code, kind, tensor.address, *values)


def _encode_any(tensor: TensorSummary, kind: int) -> bytes:
    stats = tensor.stats
    mask = stats.mask
    content = dump_json(
        (
            tensor.address,
            tensor.offset,
            stats.min,
            stats.max,
            _full_stats(stats),
            None if mask is None else (mask.value, mask.count, mask.digest),
        )
    )
    return _LAYOUTS[_JSON].pack(_JSON, kind, 0, len(content)) + content


def decode_tensors(blob: bytes, kind_at: Callable[[int], Kind]) -> tuple[TensorSummary, ...]:
    """Undo `encode_tensor` for all tensors of an operator."""
    tensors = []
    position = 0
    end = len(blob)
    while position < end:
        code = blob[position]
        layout = _LAYOUTS[code]
        values = layout.unpack_from(blob, position)
        position += layout.size
        offset = 0
        low = high = mask = None
        full: Sequence[Any] = _NOT_FULL
        if code & _JSON:
            content = load_json(blob[position : position + values[-1]])
            position += values[-1]
            address, offset, low, high, full, pattern = content
            mask = None if pattern is None else MaskPattern(*pattern)
        else:
            address = values[2]
            first = 3
            if code & _OFFSET:
                offset = values[3]
                first = 4
            if code & _EXTREMES:
                low, high = values[first], values[first + 1]
            if code & _FULL:
                full = values[first + 2 :]
        head, stats = kind_at(values[1])
        tensors.append(
            TensorSummary(
                head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7], head[8],
                head[9], address, offset, head[10], head[11], head[12], head[13],
                TensorStats(
                    stats[0], stats[1], stats[2], stats[3], stats[4], stats[5], full[4], full[5],
                    stats[6], low, high, full[0], full[1], full[2], full[3], stats[7], stats[8],
                    stats[9], mask,
                ),
            )
        )  # fmt: skip
    return tuple(tensors)


def tensor_memory(blob: bytes) -> Iterator[tuple[int, int, float, float]]:
    """Yield kind, address, min and max (NaN where they are not known) of an operator's tensors."""
    position = 0
    end = len(blob)
    while position < end:
        code = blob[position]
        layout = _LAYOUTS[code]
        values = layout.unpack_from(blob, position)
        position += layout.size
        address = values[2]
        low: Any = math.nan
        high: Any = math.nan
        if code & _JSON:
            address, _, low, high, *_ = load_json(blob[position : position + values[-1]])
            position += values[-1]
        elif code & _EXTREMES:
            first = 4 if code & _OFFSET else 3
            low, high = values[first : first + 2]
        yield values[1], address, _as_float(low), _as_float(high)


def _as_float(value: Any) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf


def tensor_kinds(blob: bytes) -> list[int]:
    """The kinds that an operator's tensors refer to."""
    return [kind for kind, *_ in tensor_memory(blob)]
