"""The status words of hardware overflow records, in words.

Sources: the overflow manuals of CANN and the debug registers' description in the public sources.

AI Core ("AIC"), one bit each, ORed in the first word:

========  =====================================================================================
0x8       negating the smallest signed integer
0x10      integer add, subtract, multiply or multiply-add
0x20      floating point
0x80      negative floating point to unsigned integer
0x100     float32 or int32 to float16
0x400     accumulation in the CUBE unit
========  =====================================================================================

Atomic adds carry a code: DHA in bits 8-15 (9 overflow, A underflow, B source NaN, C destination
NaN, D both NaN), L2 in bits 16-18 (1 overflow, 2 underflow, 3 source NaN, 4 destination NaN, 5
both). Of AIV, AICPU and SDMA no table is public: a word that is not zero is an overflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dumpscope.model import BITS_UNKNOWN

__all__ = ["describe_status"]

_AIC_BITS: Mapping[int, str] = MappingProxyType(
    {
        0x8: "negating the smallest signed integer",
        0x10: "integer add, subtract, multiply or multiply-add",
        0x20: "floating-point overflow",
        0x80: "negative floating point to unsigned integer",
        0x100: "float32 or int32 to float16",
        0x400: "CUBE accumulation",
    }
)

_DHA_CODES: Mapping[int, str] = MappingProxyType(
    {
        0x9: "atomic add overflow",
        0xA: "atomic add underflow",
        0xB: "atomic add of a source NaN",
        0xC: "atomic add to a destination NaN",
        0xD: "atomic add of a source NaN to a destination NaN",
    }
)

_L2_CODES: Mapping[int, str] = MappingProxyType(
    {
        0x1: "atomic add overflow",
        0x2: "atomic add underflow",
        0x3: "atomic add of a source NaN",
        0x4: "atomic add to a destination NaN",
        0x5: "atomic add of a source NaN to a destination NaN",
    }
)


def describe_status(kind: str, words: Sequence[int]) -> tuple[str, ...]:
    """Say what the status words of one hardware unit mean.

    Parameters
    ----------
    kind
        "AIC", "DHA" or "L2"; of any other unit no table is known.
    words
        The status words as they were recorded. Only the first one has a table.

    Returns
    -------
    tuple of str
        One text per bit or code, each beginning with it in hex, lowest first; what no table
        holds is called an unknown bit. Empty for units without a table and for a zero status.
    """
    if kind == "AIC":
        first = [_describe_bit(bit, _AIC_BITS.get(bit)) for bit in _bits(words[0] if words else 0)]
    elif kind == "DHA":
        first = _describe_code(words[0] if words else 0, 8, 0xFF, _DHA_CODES)
    elif kind == "L2":
        first = _describe_code(words[0] if words else 0, 16, 0x7, _L2_CODES)
    else:
        return ()
    for number, word in enumerate(words[1:], 1):
        first += [f"{_describe_bit(bit, None)} of word {number}" for bit in _bits(word)]
    return tuple(first)


def _bits(word: int) -> list[int]:
    """Split a word into its set bits."""
    return [1 << index for index in range(word.bit_length()) if word >> index & 1]


def _describe_bit(bit: int, meaning: str | None) -> str:
    return f"0x{bit:x} {meaning or BITS_UNKNOWN}"


def _describe_code(word: int, shift: int, mask: int, codes: Mapping[int, str]) -> list[str]:
    """Describe the code in a field of a word, and the bits around it."""
    code = word >> shift & mask
    meaning = codes.get(code)
    rest = word & ~(mask << shift) if meaning else word
    texts = [f"0x{code << shift:x} {meaning}"] if meaning else []
    return texts + [_describe_bit(bit, None) for bit in _bits(rest)]
