"""Screening of blocked tensors with padding, without picking their elements out one by one.

Where a run holds elements only, it is screened like any tensor. Where elements and padding
alternate, the padding is overwritten with zeros, which change neither the largest value nor the
most negative one as long as there are positive and negative values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dumpscope.lazy_numpy import np
from dumpscope.stats.elements import Data, Encoding, stream_codes, stream_elements
from dumpscope.stats.exactstats import Tally, count_large
from dumpscope.stats.floatcodes import Extremes, FloatCodes
from dumpscope.stats.padding import Tile
from dumpscope.stats.screening import Screened, near_code, screen_for

if TYPE_CHECKING:
    import numpy.typing as npt

    from dumpscope.stats.positions import Placement

__all__ = ["screen_padded", "split_padding"]


def screen_padded(
    data: Data, encoding: Encoding, total: int, placement: Placement, near_limit_share: float
) -> tuple[Screened | None, int]:
    """Screen a padded tensor.

    Returns
    -------
    tuple
        What `FloatScreen.run` returns, and the number of non-finite values in the padding.
    """
    if encoding.kind is not None and encoding.lanes == 1:
        floats = _PaddedFloats(encoding, encoding.kind, near_limit_share)
        found = floats.run(data, total, placement)
        return found, floats.padding_nonfinite
    screen = screen_for(encoding.dtype, near_limit_share)
    if screen is None:
        return None, 0
    elements = _ElementsOnly(data, encoding, total, placement)
    return screen.run(elements, total), elements.padding_nonfinite


class _PaddedFloats:
    """The state of screening one tensor of an ordered float type."""

    def __init__(self, encoding: Encoding, kind: FloatCodes, near_limit_share: float) -> None:
        self._kind = kind
        self._encoding = encoding
        self._near = near_code(kind, near_limit_share)
        self._bad = kind.limit if encoding.dtype.saturates else kind.nonfinite
        self._extremes = Extremes(kind)
        self._large: Tally | None = None
        self._count = 0
        self.padding_nonfinite = 0

    def run(self, data: Data, total: int, placement: Placement) -> Screened | None:
        for start, codes in stream_codes(data, self._encoding, total):
            for at, size, valid, offset in placement.segments(start, codes.size):
                piece = codes[at - start : at - start + size]
                if isinstance(valid, Tile):
                    clean = self._add_mixed(piece, valid, offset)
                elif valid:
                    clean = self._add_elements(piece)
                else:
                    clean = True
                    self._add_padding(piece)
                if not clean:
                    return None
        minimum, maximum = self._extremes.values()
        return Screened(self._count, minimum, maximum, self._large)

    def _add_padding(self, codes: npt.NDArray[Any]) -> None:
        if self._holds_nonfinite(codes):
            self.padding_nonfinite += int(np.count_nonzero(self._encoding.nonfinite(codes)))

    def _holds_nonfinite(self, codes: npt.NDArray[Any]) -> bool:
        if not codes.size:  # a file that ends before the padding does
            return False
        kind = self._kind
        return (
            int(np.maximum.reduce(codes)) >= kind.sign | kind.nonfinite
            or int(np.maximum.reduce(codes.view(kind.signed))) >= kind.nonfinite
        )

    def _add_elements(self, codes: npt.NDArray[Any]) -> bool:
        """Screen elements only; false when they are not clean."""
        if not codes.size:
            return True
        kind = self._kind
        self._count += codes.size
        high = int(np.maximum.reduce(codes.view(kind.signed)))
        low = int(np.maximum.reduce(codes))
        if high > self._near or low > kind.sign | self._near:
            if high >= self._bad or low >= kind.sign | self._bad:
                return False
            self._large = Tally() if self._large is None else self._large
            magnitudes = codes & codes.dtype.type(kind.magnitude)
            count_large(self._large, codes, magnitudes, kind, self._near)
        extremes = self._extremes
        extremes.high = max(extremes.high, high)
        extremes.low = max(extremes.low, low)
        if extremes.one_signed:
            extremes.floor = min(extremes.floor, int(np.minimum.reduce(codes)))
        return True

    def _add_mixed(self, codes: npt.NDArray[Any], tile: Tile, offset: int) -> bool:
        """Screen elements among padding; false when they are not clean."""
        mask = tile.mask[offset : offset + codes.size]
        kind, extremes = self._kind, self._extremes
        if self._holds_nonfinite(codes):
            self._add_padding(codes[~mask])
            return self._add_elements(codes[mask])
        count = int(np.count_nonzero(mask))
        if not count:
            return True
        ones = tile.codes(codes.dtype)[offset : offset + codes.size]
        kept = codes & ones
        high = int(np.maximum.reduce(kept.view(kind.signed)))
        low = int(np.maximum.reduce(kept))
        if (
            high > self._near
            or low > kind.sign | self._near
            # The zero in the padding may be larger than all elements.
            or (high == 0 and extremes.high < 0)
        ):
            return self._add_elements(codes[mask])
        self._count += count
        extremes.high = max(extremes.high, high)
        extremes.low = max(extremes.low, low)
        if extremes.one_signed:
            extremes.floor = min(extremes.floor, int(np.minimum.reduce(codes | ~ones)))
        return True


def split_padding(
    data: Data, encoding: Encoding, total: int, placement: Placement
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any] | None]]:
    """Yield (codes of elements, codes of padding) block by block."""
    if not placement.padded:
        for _, codes in stream_codes(data, encoding, total):
            yield codes, None
        return
    for _, codes, valid in stream_elements(data, encoding, total, placement):
        if valid is True:
            yield codes, None
        elif valid is False:
            yield codes[:0], codes
        else:
            rows = codes.reshape(-1, encoding.lanes) if encoding.lanes > 1 else codes
            yield rows[valid].reshape(-1), rows[~valid].reshape(-1)


class _ElementsOnly:
    """The bytes of a padded tensor without the padding, whose non-finite values it counts."""

    def __init__(self, data: Data, encoding: Encoding, total: int, placement: Placement) -> None:
        self._split = (data, encoding, total, placement)
        self.nbytes = data.nbytes
        self.padding_nonfinite = 0

    def blocks(self) -> Iterator[memoryview]:
        encoding = self._split[1]
        for codes, padding in split_padding(*self._split):
            if padding is not None:
                self.padding_nonfinite += encoding.count_nonfinite(padding)
            yield codes.view(np.uint8).data
