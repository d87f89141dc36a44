"""A closer look at tensors that are not clean.

Where their bad elements are, the digest of their bytes, and whether they look like a mask.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import TYPE_CHECKING, Any

from dumpscope.lazy_numpy import np
from dumpscope.model import MaskPattern
from dumpscope.stats.elements import Data, Encoding, stream_elements
from dumpscope.stats.maskbits import MASK_ELEMENTS_MAX, MaskBits
from dumpscope.stats.positions import Extent, Placement

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.dtypes import Dtype

__all__ = ["inspect_bad", "mask_constants", "mask_pattern"]

_DIGEST_BYTES = 16

_DIGEST_MIN_BYTES = 64
"""Equal bytes say something only about tensors of this length and more."""

_REPEATS = 1 << 14

_MASK_CONSTANTS = (-65504.0, -3.3895313892515355e38, -3.39e38, -3.40e38, -3.4028234663852886e38)
"""What models write where they mask: the minima of float16, bfloat16 and float32, and the round
numbers that frameworks use."""


def mask_constants(dtype: Dtype) -> frozenset[float]:
    """Return the finite values that stand for "masked out" in tensors of a type.

    They are `_MASK_CONSTANTS` as the type rounds them, also by way of float32, and the type's
    own minimum; none for types of fewer than eight bits, which reach theirs every day.
    """
    # By name: hashing a Dtype costs more than all of screening a small tensor.
    found = _CONSTANTS.get(dtype.name)
    if found is None:
        found = _CONSTANTS[dtype.name] = _mask_constants(dtype)
    return found


_CONSTANTS: dict[str, frozenset[float]] = {}


def _mask_constants(dtype: Dtype) -> frozenset[float]:
    if dtype.kind != "float" or dtype.bits < 8 or dtype.name == "float8_e8m0fnu":
        return frozenset()
    assert dtype.limit is not None
    found = {-dtype.limit}
    if dtype.bits > 8:
        singles = (_rounded(value, "float32") for value in _MASK_CONSTANTS)
        wanted = (*_MASK_CONSTANTS, *(value for value in singles if value is not None))
        rounded = (_rounded(value, dtype.name) for value in wanted)
        found.update(value for value in rounded if value is not None)
    return frozenset(found)


def _rounded(value: float, dtype: str) -> float | None:
    """Round to an IEEE type or bfloat16, to even; `None` where that overflows."""
    if dtype == "float64":
        return value
    try:
        if dtype == "float16":
            return float(struct.unpack("<e", struct.pack("<e", value))[0])
        bits = int.from_bytes(struct.pack("<f", value), "little")
    except OverflowError:
        return None
    if dtype == "bfloat16":  # by way of float32
        bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    single = float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])
    return single if math.isfinite(single) else None


def inspect_bad(
    data: Data, encoding: Encoding, placement: Placement, total: int, *, nonfinite: bool
) -> tuple[Extent, str | None]:
    """Find where the bad elements of a tensor are, and hash its bytes.

    Parameters
    ----------
    nonfinite
        Whether to look for NaN and Inf, else for values at the limit.

    Returns
    -------
    tuple
        The extent, and the hex digest of the elements' bytes: `None` when there are fewer than
        64 or all elements are the same.
    """
    find = encoding.nonfinite if nonfinite else encoding.saturated
    extent = Extent(placement)
    digest = _BytesDigest(encoding.lanes)
    for start, codes, valid in stream_elements(data, encoding, total, placement):
        digest.add(codes)
        if valid is False:
            continue
        bad = find(codes)
        if valid is not True:
            bad &= valid
        extent.add(start, bad)
    short = encoding.dtype.nbytes(total) < _DIGEST_MIN_BYTES
    return extent, None if short else digest.result()


class _BytesDigest:
    """The digest of the bytes of all elements, unless all of them are the same."""

    def __init__(self, lanes: int) -> None:
        self._hasher = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._lanes = lanes
        self._model: npt.NDArray[Any] | None = None
        self._repeated = 0
        self._constant = True

    def add(self, codes: npt.NDArray[Any]) -> None:
        """Take the codes of the next elements into account."""
        if self._constant:
            if self._model is None:
                self._model = codes[: self._lanes].copy()
            if (codes.reshape(-1, self._lanes) == self._model).all():
                # Tensors that are NaN all over are frequent, and need no hashing.
                self._repeated += codes.size // self._lanes
                return
            self._constant = False
            whole, rest = divmod(self._repeated, _REPEATS)
            repeated = np.tile(self._model, _REPEATS if whole else rest)
            for _ in range(whole):
                self._hasher.update(repeated.data)
            if rest:
                self._hasher.update(repeated[: rest * self._lanes].data)
        self._hasher.update(codes.data)

    def result(self) -> str | None:
        return None if self._constant else self._hasher.hexdigest()


def mask_pattern(
    data: Data,
    encoding: Encoding,
    placement: Placement,
    total: int,
    value: float,
    *,
    lowest: float | None = None,
) -> MaskPattern:
    """Find which elements hold a value, for a tensor in which it looks like a mask.

    -Inf beside finite values that are nearly as low (`lowest` is the smallest) is what remains of
    the type's minimum where scores were added to it: then all elements beyond half of the limit
    count.

    There is no digest of their positions for tensors of more than `MASK_ELEMENTS_MAX` elements
    and for truncated ones.
    """
    code = encoding.code_of(value)
    kind, limit = encoding.kind, encoding.dtype.limit
    half = None
    if kind is not None and limit is not None and lowest is not None and lowest < -limit / 2:
        half = kind.sign | kind.largest_below(limit / 2)
    count = 0
    bits = None
    if placement.count <= MASK_ELEMENTS_MAX and total == placement.stored_count:
        bits = MaskBits(placement)
    for start, codes, valid in stream_elements(data, encoding, total, placement):
        if valid is False:
            continue
        # Negative codes grow as their values fall, and -Inf has the largest.
        holds = codes == code if half is None else (codes > half) & (codes <= code)
        if valid is not True:
            holds &= valid
        found = int(np.count_nonzero(holds))
        count += found
        if bits is not None and found:
            bits.add(start, holds)
    return MaskPattern(value, count, bits.digest() if bits else None)
