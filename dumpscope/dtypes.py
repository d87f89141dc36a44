"""Data types of Ascend dumps: GE's codes and everybody's names for them.

GE data-type codes as the CANN headers number them:

======  =====================================  ======  ==========================================
code    type                                   code    type
======  =====================================  ======  ==========================================
0       undefined                              22      quint16
1       float32                                23      resource (read as int64)
2       float16                                24      string_ref
3       int8                                   25      dual
4       uint8                                  26      variant
5       int16                                  27      bfloat16
6       uint16                                 28      int4
7       int32                                  29      uint1
8       int64                                  30      int2
9       uint32                                 31      uint2
10      uint64                                 32      complex32 (two float16)
11      bool                                   33      hifloat8
12      float64                                34      float8_e5m2
13      string                                 35      float8_e4m3fn
14      dual_sub_int8                          36      float8_e8m0fnu
15      dual_sub_uint8                         37      float6_e3m2fn
16      complex64                              38      float6_e2m3fn
17      complex128                             39      float4_e2m1fn
18-21   qint8, qint16, qint32, quint8          40-42   float4_e1m2, hifloat4, hifloat4_scale
======  =====================================  ======  ==========================================

Names are those of numpy and ml_dtypes where these have the type. The `kind` of an ml_dtypes
type in numpy is 'V': ask `Dtype.kind`, never numpy's.
"""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from dumpscope.records import record
from dumpscope.regexes import regex

if TYPE_CHECKING:
    import numpy as np

__all__ = ["UNDEFINED", "Dtype", "dtype_named", "dtype_of_code", "dtype_of_label"]

Kind = Literal["float", "int", "uint", "bool", "complex", "string", "opaque"]


@record(frozen=True, slots=True)
class Dtype:
    """One data type.

    Attributes
    ----------
    bits
        Bits of one element in memory; 0 when not known (strings, undefined types).
    scalar
        numpy's type string, or the name in ml_dtypes, of the type whose elements lie in memory the
        same way, if there is one. `numpy` is that type.
    limit
        The largest finite value of a float type.
    saturates
        A value at the limit is a finding: true of the types that computations overflow in, not
        of those which quantising casts fill to the limit every day.
    packed
        Elements share bytes, lowest bits first.
    """

    name: str
    bits: int
    kind: Kind
    scalar: str | None = None
    limit: float | None = None
    saturates: bool = False
    packed: bool = False

    @property
    def numpy(self) -> np.dtype[Any] | None:
        """The numpy or ml_dtypes type of `scalar`."""
        return None if self.scalar is None else _numpy_type(self.scalar)

    def nbytes(self, count: int) -> int:
        """How many bytes `count` elements take (0 when the size of one is not known)."""
        return (count * self.bits + 7) // 8

    @property
    def decodable(self) -> bool:
        """Whether `decoding.decode` knows what the bytes mean."""
        return self.kind not in ("string", "opaque")


@cache
def _numpy_type(scalar: str) -> np.dtype[Any]:
    # Imported here: what only names types, as an answer out of a store does, starts without them.
    import numpy as np

    try:
        return np.dtype(scalar)
    except TypeError:
        import ml_dtypes

        named: np.dtype[Any] = np.dtype(getattr(ml_dtypes, scalar))
        return named


def _plain(name: str, kind: Kind, scalar: str) -> Dtype:
    """Describe a type by numpy's type string: `<f2` has two bytes."""
    return Dtype(name, int(scalar.lstrip("<")[1:]) * 8, kind, scalar)


def _float(name: str, bits: int, limit: float, saturates: bool, scalar: str | None = None) -> Dtype:
    """Describe a float type that ml_dtypes has under the same name, or numpy as `scalar`."""
    return Dtype(name, bits, "float", scalar or name, limit, saturates)


def _packed(name: str, bits: int, kind: Kind, limit: float | None = None) -> Dtype:
    return Dtype(name, bits, kind, limit=limit, packed=True)


UNDEFINED = Dtype("undefined", 0, "opaque")
"""Nothing is known of it: its tensors are unchecked."""

_BY_CODE: dict[int, Dtype] = {
    0: UNDEFINED,
    1: _float("float32", 32, (2 - 2.0**-23) * 2.0**127, True, "<f4"),
    2: _float("float16", 16, 65504.0, True, "<f2"),
    3: _plain("int8", "int", "i1"),
    4: _plain("uint8", "uint", "u1"),
    5: _plain("int16", "int", "<i2"),
    6: _plain("uint16", "uint", "<u2"),
    7: _plain("int32", "int", "<i4"),
    8: _plain("int64", "int", "<i8"),
    9: _plain("uint32", "uint", "<u4"),
    10: _plain("uint64", "uint", "<u8"),
    11: Dtype("bool", 8, "bool", "?"),
    12: _float("float64", 64, sys.float_info.max, True, "<f8"),
    13: Dtype("string", 0, "string"),
    14: _plain("dual_sub_int8", "int", "i1"),
    15: _plain("dual_sub_uint8", "uint", "u1"),
    16: _plain("complex64", "complex", "<c8"),
    17: _plain("complex128", "complex", "<c16"),
    18: _plain("qint8", "int", "i1"),
    19: _plain("qint16", "int", "<i2"),
    20: _plain("qint32", "int", "<i4"),
    21: _plain("quint8", "uint", "u1"),
    22: _plain("quint16", "uint", "<u2"),
    23: _plain("resource", "int", "<i8"),
    24: Dtype("string_ref", 0, "string"),
    25: Dtype("dual", 0, "opaque"),
    26: Dtype("variant", 0, "opaque"),
    27: _float("bfloat16", 16, (2 - 2.0**-7) * 2.0**127, True),
    28: _packed("int4", 4, "int"),
    29: _packed("uint1", 1, "uint"),
    30: _packed("int2", 2, "int"),
    31: _packed("uint2", 2, "uint"),
    32: Dtype("complex32", 32, "complex"),
    33: Dtype("hifloat8", 8, "float", limit=32768.0, saturates=True),
    34: _float("float8_e5m2", 8, 57344.0, True),
    35: _float("float8_e4m3fn", 8, 448.0, False),
    36: _float("float8_e8m0fnu", 8, 2.0**127, False),
    37: _packed("float6_e3m2fn", 6, "float", 28.0),
    38: _packed("float6_e2m3fn", 6, "float", 7.5),
    39: _packed("float4_e2m1fn", 4, "float", 6.0),
    40: _packed("float4_e1m2", 4, "float", 1.75),
    41: Dtype("hifloat4", 4, "opaque", packed=True),
    42: Dtype("hifloat4_scale", 0, "opaque"),
}

_BY_NAME = {dtype.name: dtype for dtype in _BY_CODE.values()}

# Spellings that differ from ours by more than case, prefix and punctuation: C's, torch's, GE's
# shorter ones, those of safetensors.
_SYNONYMS = {
    "float": "float32",
    "single": "float32",
    "fp32": "float32",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "double": "float64",
    "fp64": "float64",
    "hif8": "hifloat8",
    "hf8": "hifloat8",
    "fp8e5m2": "float8_e5m2",
    "f8e5m2": "float8_e5m2",
    "float8e5m2": "float8_e5m2",
    "fp8e4m3": "float8_e4m3fn",
    "fp8e4m3fn": "float8_e4m3fn",
    "f8e4m3": "float8_e4m3fn",
    "f8e4m3fn": "float8_e4m3fn",
    "float8e4m3": "float8_e4m3fn",
    "fp8e8m0": "float8_e8m0fnu",
    "f8e8m0": "float8_e8m0fnu",
    "float8e8m0": "float8_e8m0fnu",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "float6e3m2": "float6_e3m2fn",
    "float6e2m3": "float6_e2m3fn",
    "fp4e2m1": "float4_e2m1fn",
    "fp4e1m2": "float4_e1m2",
    "float4e2m1": "float4_e2m1fn",
    "float4e2m1fnx2": "float4_e2m1fn",
    "float4e1m2fn": "float4_e1m2",
    "byte": "uint8",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "bool8": "bool",
    "boolean": "bool",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "str": "string",
    "unknow": "undefined",
    "unknown": "undefined",
    "na": "undefined",
    "none": "undefined",
    "null": "undefined",
    "": "undefined",
}

_PREFIXES = regex(r"(?:torch|numpy|np|ml_?dtypes|mindspore|mstype|ms|jnp)\.|dt_|number\[|ge:")
_DROPPED = regex(r"[^a-z0-9]")
_TYPE_STRING = regex(r"[<|=]([?biufc])(\d{1,2})")
"""numpy's own: '<f2', '|u1'. The size is in bytes, where other people's `i8` has eight bits."""


def _squeeze(label: str) -> str:
    return _DROPPED.sub("", _PREFIXES.sub("", label.strip().lower()))


_SOUGHT = {_squeeze(name): dtype for name, dtype in _BY_NAME.items()}
_SOUGHT.update({label: _BY_NAME[name] for label, name in _SYNONYMS.items()})


@lru_cache(maxsize=1024)
def _opaque(name: str) -> Dtype:
    return Dtype(name, 0, "opaque")


def dtype_named(name: str) -> Dtype:
    """Return the type of this name as dumpscope spells it; an unknown name is an opaque type."""
    dtype = _BY_NAME.get(name)
    return _opaque(name[:64]) if dtype is None else dtype


def dtype_of_code(code: int) -> Dtype:
    """Return the type of a GE code; an unknown code is the opaque type `dtype<code>`."""
    dtype = _BY_CODE.get(code)
    return _opaque(f"dtype{code}") if dtype is None else dtype


@lru_cache(maxsize=1024)
def dtype_of_label(label: str) -> Dtype:
    """Return the type that a writer's word names.

    Takes GE's (`DT_FLOAT16`), torch's (`torch.bfloat16`), MindSpore's (`Float32`) and numpy's
    (`float16`, `<f2`) spellings in any case. `-`, `UNKNOW` and an empty label are undefined;
    a word that nobody knows becomes an opaque type of that name.
    """
    type_string = _TYPE_STRING.fullmatch(label)
    if type_string:
        letter, size = type_string.groups()
        words = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
        bits = "" if letter in "b?" else str(8 * int(size))
        dtype = _SOUGHT.get(words.get(letter, "bool") + bits)
    else:
        dtype = _SOUGHT.get(_squeeze(label[:256]))
    return _opaque(label.strip()[:64]) if dtype is None else dtype
