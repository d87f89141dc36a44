"""The header of a .npy file (NumPy's format specification, NEP 1).

=========  ==========================================================================
offset     what
=========  ==========================================================================
0          the bytes 93 "NUMPY"
6          major version 1, 2 or 3; minor version
8          length of the text: u16 in version 1, u32 in 2 and 3
10 or 12   text of a Python dictionary, padded with blanks and a line end:
           `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`
then       the elements, in C order or in Fortran order
=========  ==========================================================================

The text is matched, not evaluated: NumPy writes these three keys and literals only.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from dumpscope.errors import CorruptDumpError, TruncatedDumpError, UnsupportedDtypeError
from dumpscope.regexes import regex

__all__ = ["MAGIC", "MAX_DIMS", "MAX_ELEMENTS", "NpyHeader", "header_length", "parse_header"]

MAGIC = b"\x93NUMPY"

MAX_DIMS = 32
"""What every supported NumPy takes."""

MAX_ELEMENTS = 1 << 56
"""More than any memory holds, and their bytes still fit into 63 bits."""

_MAX_TEXT_BYTES = 1 << 16

_FIELD = (
    r"""\s*['"](descr|fortran_order|shape)['"]\s*:\s*"""
    r"""('[^'\\]*'|"[^"\\]*"|True|False|\([0-9\s,L]*\))\s*"""
)
_TEXT = regex(rf"\s*\{{{_FIELD},{_FIELD},{_FIELD},?\s*\}}\s*")
_STRUCTURED = regex(r"""['"]descr['"]\s*:\s*[\[(]""")
_PREAMBLE_BYTES = 12


class NpyHeader(NamedTuple):
    """`descr` is NumPy's type string; `fortran_order` reverses the order of the axes in memory."""

    descr: str
    fortran_order: bool
    shape: tuple[int, ...]


def header_length(start: bytes) -> tuple[int, int]:
    """Return where the text starts and where the elements start.

    Parameters
    ----------
    start
        The first 12 bytes, or all of a shorter file.

    Raises
    ------
    TruncatedDumpError
        The file ends before that is said.
    CorruptDumpError
        It is no npy file, or its header is longer than any.
    """
    if not start.startswith(MAGIC[: len(start)]):
        raise CorruptDumpError(
            f"expected an npy file to start with {MAGIC!r}, found {start[:6]!r}", offset=0
        )
    if len(start) < 10:
        raise TruncatedDumpError(
            f"expected the 10 bytes that every npy file starts with, found {len(start)}", offset=0
        )
    major = start[6]
    if major == 1:
        text = 10
        end = text + int.from_bytes(start[8:10], "little")
    elif major in (2, 3):
        if len(start) < _PREAMBLE_BYTES:
            raise TruncatedDumpError("the npy file ends inside the length of its header", offset=8)
        text = _PREAMBLE_BYTES
        end = text + int.from_bytes(start[8:12], "little")
    else:
        raise CorruptDumpError(f"expected npy version 1, 2 or 3, found {major}", offset=6)
    if end - text > _MAX_TEXT_BYTES:
        raise CorruptDumpError(
            f"expected an npy header of at most {_MAX_TEXT_BYTES} bytes, found {end - text}",
            offset=8,
        )
    return text, end


@lru_cache(maxsize=1024)
def parse_header(text: bytes) -> NpyHeader:
    """Parse the dictionary of a header.

    Raises
    ------
    CorruptDumpError
        It is not the dictionary that NumPy writes, or its shape is impossible.
    UnsupportedDtypeError
        The elements are structures.
    """
    words = text.decode("latin-1")
    match = _TEXT.fullmatch(words)
    if match is None:
        if _STRUCTURED.search(words):
            raise UnsupportedDtypeError(
                "holds structures of several fields, which no operator makes: save each field "
                "as an array of its own",
                offset=10,
            )
        raise CorruptDumpError(
            "expected a header {'descr': …, 'fortran_order': …, 'shape': …}, found "
            f"{words[:80]!r}",
            offset=10,
        )
    fields = dict(zip(match.groups()[::2], match.groups()[1::2], strict=True))
    descr, order, shape = (fields.get(key, "") for key in ("descr", "fortran_order", "shape"))
    if descr[:1] not in ("'", '"') or order not in ("True", "False") or shape[:1] != "(":
        raise CorruptDumpError(
            f"the npy header {words[:80]!r} has a value of a wrong kind", offset=10
        )
    return NpyHeader(descr[1:-1], order == "True", _parse_shape(shape))


def _parse_shape(text: str) -> tuple[int, ...]:
    dims = [part.strip().rstrip("L") for part in text[1:-1].split(",")]
    if dims and not dims[-1]:
        dims.pop()
    if len(dims) > MAX_DIMS or not all(dim.isascii() and dim.isdigit() for dim in dims):
        raise CorruptDumpError(
            f"expected a shape of at most {MAX_DIMS} numbers, found {text[:80]!r}", offset=10
        )
    if any(len(dim) > 19 for dim in dims):
        raise CorruptDumpError(f"the shape {text[:80]!r} is larger than any memory", offset=10)
    shape = tuple(map(int, dims))
    if math.prod(dim for dim in shape if dim) > MAX_ELEMENTS:
        raise CorruptDumpError(f"the shape {text[:80]!r} is larger than any memory", offset=10)
    return shape
