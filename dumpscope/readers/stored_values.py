"""Values that are stored as another type than they are, and how to stream them as what they are.

- NumPy has no bfloat16, so converters and MindSpore store it as float32 and say so in the file's
  name; int4 is stored as int8.
- Arrays of ml_dtypes types are saved as void (`|V2`, `<V1`) or `<f1`: the type is lost, and only
  the name, or their size, tells it.
- Any type may be stored big-endian.

Each is converted block by block while it is read. The narrower type loses nothing that the
values ever had, and its limit is the one that counts for saturation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from dumpscope.dtypes import Dtype, dtype_named, dtype_of_label
from dumpscope.errors import UnsupportedDtypeError
from dumpscope.readers.protocol import TensorData
from dumpscope.records import record
from dumpscope.regexes import regex

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["ConvertedData", "Stored", "resolve_descr", "resolve_stored"]

Convert = Callable[[memoryview], "npt.NDArray[Any]"]

_DESCR = regex(r"([<>|=])([A-Za-z?])([0-9]{0,4})(?:\[.*\])?")
_NATIVE = {
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
    "b1": "bool",
    "?": "bool",
    "W4": "complex32",
    "f1": "float8_e5m2",
    # Dates and spans are counts of their unit.
    "M8": "int64",
    "m8": "int64",
    **{f"i{size}": f"int{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"uint{8 * size}" for size in (1, 2, 4, 8)},
}
_NARROWED = frozenset({"float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"})
_NOT_IN_NUMPY = frozenset(
    {"bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "hifloat8"}
)
_WIDE = frozenset({"float16", "float32", "float64"})


class Stored(NamedTuple):
    """How the bytes of a file become values.

    Attributes
    ----------
    dtype
        What the values are.
    itemsize
        Bytes of one stored element, 0 for packed types and strings.
    convert
        Turns a block of stored bytes into bytes of `dtype`; `None` where they are that already.
    unchecked
        Why the values cannot be told, `None` when they can.
    """

    dtype: Dtype
    itemsize: int
    convert: Convert | None = None
    unchecked: str | None = None
    notes: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class ConvertedData:
    """Tensor data that is converted while it is streamed; `nbytes` counts converted bytes."""

    stored: TensorData
    convert: Convert
    nbytes: int

    def blocks(self) -> Iterator[memoryview]:
        for block in self.stored.blocks():
            yield self.convert(block).view("u1").data


@lru_cache(maxsize=1024)
def resolve_descr(descr: str, label: str | None) -> Stored:
    """Tell what the elements of an npy file are.

    Parameters
    ----------
    descr
        NumPy's type string: `<f4`, `|V2`, `<f1`.
    label
        What the file's name calls them, `None` when it does not.

    Raises
    ------
    UnsupportedDtypeError
        They are objects, or of a size that no operator computes with.
    """
    match = _DESCR.fullmatch(descr)
    if match is None:
        raise UnsupportedDtypeError(f"knows no elements of NumPy type {descr[:40]!r}", offset=10)
    order, kind, size = match.groups()
    if kind == "O":
        raise UnsupportedDtypeError(
            "holds Python objects, which are never unpickled: save plain arrays", offset=10
        )
    if kind in "SUa":
        return Stored(dtype_named("string"), 0)
    if kind == "V" and size in ("1", "2"):
        return _resolve_void(int(size), label)
    name = _NATIVE.get(kind + size)
    if name is None:
        raise UnsupportedDtypeError(f"knows no elements of NumPy type {descr[:40]!r}", offset=10)
    stored = resolve_stored(dtype_named(name), label, guessed=name == "float8_e5m2")
    if order == ">" and stored.itemsize > 1:
        return stored._replace(convert=_swapping(dtype_named(name), stored))
    return stored


def resolve_stored(stored: Dtype, label: str | None, *, guessed: bool = False) -> Stored:
    """Tell what values stored as one type are when a name calls them another one.

    Parameters
    ----------
    guessed
        `stored` itself is a guess from the size: a label of the same size overrules it.
    """
    itemsize = stored.bits // 8
    if label is None:
        return Stored(stored, itemsize)
    true = dtype_of_label(label)
    if true.name == stored.name or not true.decodable:
        return Stored(stored, itemsize)
    notes = (f"stored_as_{stored.name}",)
    if true.name in _NARROWED and stored.name in _WIDE and true.bits < stored.bits:
        return Stored(true, itemsize, _narrowing(stored, true), notes=notes)
    if true.packed and stored.bits == 8 and (stored.kind in ("int", "uint") or guessed):
        return Stored(true, itemsize, _packing(true.bits), notes=notes)
    if true.bits == stored.bits and not true.packed:
        if guessed:
            return Stored(true, itemsize)
        if stored.kind in ("int", "uint") and true.name in _NOT_IN_NUMPY:
            return Stored(true, itemsize, notes=notes)
    # The label cannot be about these bytes: what is stored is what is measured.
    return Stored(stored, itemsize, notes=(f"labelled_{true.name}",))


def _resolve_void(size: int, label: str | None) -> Stored:
    """Tell what is behind `|V1` and `|V2`."""
    true = None if label is None else dtype_of_label(label)
    if true is not None and true.decodable:
        if true.bits == 8 * size and not true.packed:
            return Stored(true, size)
        if true.packed and size == 1:
            return Stored(true, size, _packing(true.bits), notes=("stored_as_uint8",))
    if size == 2:
        return Stored(dtype_named("bfloat16"), size)
    return Stored(dtype_named("undefined"), size, unchecked="ambiguous_dtype")


# Imported where something has to be converted: numpy comes with it.


def _narrowing(stored: Dtype, true: Dtype) -> Convert:
    from dumpscope.readers.conversions import narrowing

    return narrowing(stored, true)


def _packing(bits: int) -> Convert:
    from dumpscope.readers.conversions import packing

    return packing(bits)


def _swapping(native: Dtype, stored: Stored) -> Convert:
    from dumpscope.readers.conversions import swapping

    return swapping(native, stored.convert)
