"""GE's own numbering of data types, which ATB and nano dumps use.

It differs from the one in CANN operator dumps (`dtypes.dtype_of_code`): 0 is float32, 28
undefined. Source: GE's public `types.h`. The format codes are the same in both.
"""

from __future__ import annotations

from dumpscope.dtypes import UNDEFINED, Dtype, dtype_named

__all__ = ["dtype_of_ge_code"]

_NAMES = {
    0: "float32",
    1: "float16",
    2: "int8",
    3: "int32",
    4: "uint8",
    6: "int16",
    7: "uint16",
    8: "uint32",
    9: "int64",
    10: "uint64",
    11: "float64",
    12: "bool",
    13: "string",
    14: "dual_sub_int8",
    15: "dual_sub_uint8",
    16: "complex64",
    17: "complex128",
    18: "qint8",
    19: "qint16",
    20: "qint32",
    21: "quint8",
    22: "quint16",
    23: "resource",
    24: "string_ref",
    25: "dual",
    26: "variant",
    27: "bfloat16",
    29: "int4",
    30: "uint1",
    31: "int2",
    32: "uint2",
    33: "complex32",
    34: "hifloat8",
    35: "float8_e5m2",
    36: "float8_e4m3fn",
    37: "float8_e8m0fnu",
    38: "float6_e3m2fn",
    39: "float6_e2m3fn",
    40: "float4_e2m1fn",
    41: "float4_e1m2",
}


def dtype_of_ge_code(code: int) -> Dtype:
    """Return the type of a code; -1 and 28 are undefined, others become `ge_dtype<code>`."""
    if code in (-1, 28):
        return UNDEFINED
    return dtype_named(_NAMES.get(code, f"ge_dtype{code}"))
