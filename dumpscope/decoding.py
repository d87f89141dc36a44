"""The elements of a dump as numpy arrays: which bytes are which numbers.

The rules for types that numpy and ml_dtypes lack are in `lowfloats`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from dumpscope.errors import TruncatedDumpError, UnsupportedDtypeError
from dumpscope.lowfloats import code_values, unpack_codes

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.dtypes import Dtype

__all__ = ["decode"]

_DECODED_PACKED: dict[str, Any] = {
    "int4": ml_dtypes.int4,
    "int2": ml_dtypes.int2,
    "uint2": ml_dtypes.uint2,
    "uint1": np.uint8,
    "float4_e2m1fn": ml_dtypes.float4_e2m1fn,
    "float4_e1m2": np.float32,
    "float6_e3m2fn": np.float32,
    "float6_e2m3fn": np.float32,
}


def decode(raw: bytes | memoryview, dtype: Dtype, count: int) -> npt.NDArray[Any]:
    """Decode the first `count` elements of some bytes.

    Returns
    -------
    ndarray, 1-D and read-only
        Of the numpy or ml_dtypes type of the same name where there is one; hifloat8, the 6-bit
        floats and float4_e1m2 as float32, complex32 as complex64, uint1 as uint8. A bool is true
        wherever its byte is not zero.

    Raises
    ------
    UnsupportedDtypeError
        The type is a string or is not known.
    TruncatedDumpError
        There are fewer bytes than `count` elements take.
    """
    if not dtype.decodable:
        raise UnsupportedDtypeError(f"values of type {dtype.name} cannot be decoded")
    needed = dtype.nbytes(count)
    if len(raw) < needed:
        raise TruncatedDumpError(
            f"expected {needed} bytes for {count} elements of {dtype.name}, found {len(raw)}"
        )
    values: npt.NDArray[Any]
    if dtype.packed:
        codes = unpack_codes(raw, dtype.bits, count)
        target = _DECODED_PACKED[dtype.name]
        if dtype.name == "uint1":
            values = codes
        else:
            values = code_values(dtype.name).astype(np.float32).astype(target)[codes]
    elif dtype.name == "hifloat8":
        table = code_values(dtype.name).astype(np.float32)
        values = table[np.frombuffer(raw, np.uint8, count)]
    elif dtype.name == "complex32":
        parts = np.frombuffer(raw, "<f2", 2 * count).astype(np.float32)
        values = parts.view(np.complex64)
    elif dtype.kind == "bool":
        values = np.frombuffer(raw, np.uint8, count) != 0
    else:
        values = np.frombuffer(raw, dtype.numpy, count)
    values.flags.writeable = False
    return values
