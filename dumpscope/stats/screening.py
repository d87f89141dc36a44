"""What every clean tensor costs: two or three integer reductions per block, no scratch memory.

A screen reads the bit patterns of a float type as signed and as unsigned integers. The largest
signed one is the largest value, the largest unsigned one the most negative value, and both
together say whether anything is not finite, at the limit or near it. Where all values have one
sign, the smallest unsigned pattern is the other end.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple, cast

from dumpscope import kernel
from dumpscope.dtypes import dtype_named
from dumpscope.lazy_numpy import np
from dumpscope.model import TensorStats
from dumpscope.stats.exactstats import Tally, count_large
from dumpscope.stats.floatcodes import COMPONENT_OF, FLOAT_CODES, FloatCodes
from dumpscope.stats.inspection import mask_constants
from dumpscope.stats.stretches import read_extremes

if TYPE_CHECKING:
    from dumpscope.dtypes import Dtype
    from dumpscope.layouts import Geometry
    from dumpscope.stats.elements import Data

__all__ = [
    "FloatScreen",
    "IntegerScreen",
    "Screened",
    "near_code",
    "screen_for",
    "screen_small",
]

SMALL_BYTES = 1 << 16
"""Tensors of up to so many bytes are tried in one call of the kernel first."""

_NO_CODE = 1 << 64


@cache
def near_code(kind: FloatCodes, share: float) -> int:
    """Return the largest magnitude that is not near the limit; the limit itself never is."""
    near = kind.largest_below(max(share, 0.0) * kind.value_of(kind.limit))
    return min(near, kind.limit - 1)


class Screened:
    """What screening found in a clean tensor.

    `large` counts what is at the limit or near it, `None` when nothing is.
    """

    __slots__ = ("count", "large", "maximum", "minimum")

    def __init__(
        self,
        count: int,
        minimum: float | None,
        maximum: float | None,
        large: Tally | None = None,
    ) -> None:
        self.count = count
        self.minimum = minimum
        self.maximum = maximum
        self.large = large


class FloatScreen:
    """Screens the elements of one ordered float type, or the components of a complex one."""

    __slots__ = ("_bad", "_bad_negative", "_itemsize", "_kind", "_lanes", "_near", "_near_negative")

    def __init__(self, dtype: Dtype, kind: FloatCodes, near_limit_share: float) -> None:
        self._kind = kind
        self._itemsize = kind.bits // 8
        self._bad = kind.limit if dtype.saturates else kind.nonfinite
        self._bad_negative = kind.sign | self._bad
        if dtype.kind == "complex":
            self._lanes = 2
            self._near = kind.limit
        else:
            self._lanes = 1
            self._near = near_code(kind, near_limit_share)
        self._near_negative = kind.sign | self._near

    def run(self, data: Data, total: int) -> Screened | None:
        """Screen the first `total` elements.

        Returns
        -------
        Screened or None
            `None` when the tensor is not clean, or its blocks end inside elements.
        """
        if self._kind.has_sign:
            ends = read_extremes(data, total * self._lanes, self._itemsize, self._near)
            if ends is not None:
                high, _, low, floor = ends
                if high >= self._bad or low >= self._bad_negative:
                    return None
                if high <= self._near and low <= self._near_negative:
                    return self._conclude(total, high, low, floor, None)
        return self._run_blocks(data, total)

    def _run_blocks(self, data: Data, total: int) -> Screened | None:
        kind = self._kind
        sign = kind.sign
        itemsize = self._itemsize
        look = kernel.screen
        highest, lowest, floor = -_NO_CODE, -1, _NO_CODE
        large: Tally | None = None
        left = total * self._lanes
        for block in data.blocks():
            count = len(block) // itemsize
            if count >= left:
                count = left
            elif count * itemsize != len(block):
                return None
            elif not count:
                continue
            if look is None:
                codes = np.frombuffer(block, kind.unsigned, count)
                high = int(np.maximum.reduce(codes.view(kind.signed)))
                low = int(np.maximum.reduce(codes))
                least = -1  # not known: it takes a third pass, which is seldom needed
            else:
                high, _, low, least = look(block, count, itemsize)
                if not kind.has_sign:
                    high = low
            if high > self._near or low > self._near_negative:
                if high >= self._bad or low >= self._bad_negative:
                    return None
                large = Tally() if large is None else large
                codes = np.frombuffer(block, kind.unsigned, count)
                magnitudes = codes & codes.dtype.type(kind.magnitude)
                count_large(large, codes, magnitudes, kind, self._near)
            if high > highest:
                highest = high
            if low > lowest:
                lowest = low
            if lowest < sign or highest < 0:
                floor = min(floor, int(np.minimum.reduce(codes)) if least < 0 else least)
            left -= count
            if not left:
                break
        return self._conclude(total - left // self._lanes, highest, lowest, floor, large)

    def _conclude(
        self, count: int, highest: int, lowest: int, floor: int, large: Tally | None
    ) -> Screened:
        if lowest < 0 or self._lanes == 2:
            return Screened(count, None, None)
        sign = self._kind.sign
        # Adding zero makes 0.0 of -0.0, whichever of the two comes first in a block.
        value_of = self._kind.value_of
        minimum = value_of(lowest if lowest >= sign else floor) + 0.0
        maximum = value_of(highest if highest >= 0 else floor) + 0.0
        return Screened(count, minimum, maximum, large)


class IntegerScreen:
    """Finds the extremes of tensors of one integer type or of bools."""

    __slots__ = ("_itemsize", "_scalar", "_signed", "_truth")

    def __init__(self, dtype: Dtype) -> None:
        assert dtype.scalar is not None
        self._truth = dtype.kind == "bool"
        self._scalar = "u1" if self._truth else dtype.scalar
        self._itemsize = dtype.bits // 8
        self._signed = dtype.kind == "int"

    def run(self, data: Data, total: int) -> Screened | None:
        """Look at the first `total` elements; `None` when blocks end inside elements."""
        itemsize = self._itemsize
        look = kernel.screen
        low: int | None = None
        high: int | None = None
        whole = read_extremes(data, total, itemsize, (1 << (8 * itemsize - 1)) - 1)
        if whole is not None:
            low, high = (whole[1], whole[0]) if self._signed else (whole[3], whole[2])
            return self._conclude(total, low, high)
        left = total
        for block in data.blocks():
            count = len(block) // itemsize
            if count >= left:
                count = left
            elif count * itemsize != len(block):
                return None
            elif not count:
                continue
            if look is None:
                values = np.frombuffer(block, self._scalar, count)
                least, most = int(np.minimum.reduce(values)), int(np.maximum.reduce(values))
            elif self._signed:
                most, least, _, _ = look(block, count, itemsize)
            else:
                _, _, most, least = look(block, count, itemsize)
            low = least if low is None or least < low else low
            high = most if high is None or most > high else high
            left -= count
            if not left:
                break
        return self._conclude(total - left, low, high)

    def _conclude(self, count: int, low: int | None, high: int | None) -> Screened:
        if self._truth and low is not None and high is not None:
            low, high = int(low > 0), int(high > 0)
        return Screened(count, low, high)


_SCREENS: dict[tuple[str, float], FloatScreen | IntegerScreen | None] = {}


def screen_for(dtype: Dtype, near_limit_share: float) -> FloatScreen | IntegerScreen | None:
    """Return the screen for a type, `None` when its tensors have to be counted exactly."""
    key = (dtype.name, near_limit_share)
    try:
        return _SCREENS[key]
    except KeyError:
        pass
    screen: FloatScreen | IntegerScreen | None = None
    kind = FLOAT_CODES.get(dtype.name) or COMPONENT_OF.get(dtype.name)
    if kind is not None:
        screen = FloatScreen(dtype, kind, near_limit_share)
    elif dtype.kind in ("int", "uint", "bool") and dtype.scalar is not None:
        screen = IntegerScreen(dtype)
    _SCREENS[key] = screen
    return screen


class _SmallPlan(NamedTuple):
    """How tensors of one geometry and type are screened in one call; `nbytes` 0: they are not."""

    share: float
    nbytes: int = 0
    elements: int = 0
    number: int = 0
    near: int = 0
    masks: frozenset[float] = frozenset()


def _plan_small(name: str, geometry: Geometry, near_limit_share: float) -> _SmallPlan:
    number = kernel.FLOAT_TYPES.get(name)
    if number is None or geometry.padded:
        return _SmallPlan(near_limit_share)
    dtype = dtype_named(name)
    count = geometry.stored_count
    nbytes = dtype.nbytes(count)
    if not 0 < nbytes <= SMALL_BYTES:
        return _SmallPlan(near_limit_share)
    near = near_code(FLOAT_CODES[name], near_limit_share)
    return _SmallPlan(near_limit_share, nbytes, count, number, near, mask_constants(dtype))


def screen_small(
    data: Data, dtype: str, geometry: Geometry, near_limit_share: float
) -> TensorStats | None:
    """Measure a tensor that is as most are: small, whole, clean, and far from all limits.

    Millions of them are scanned, and what is done for each of them in Python counts.

    Parameters
    ----------
    dtype
        The type's name.

    Returns
    -------
    TensorStats or None
        `None` when it has to be looked at properly.
    """
    screen_floats = kernel.screen_floats
    plan = cast("_SmallPlan | None", geometry.plans.get(dtype))
    if plan is None or plan[0] != near_limit_share:
        plan = _plan_small(dtype, geometry, near_limit_share)
        geometry.plans[dtype] = plan
    _, nbytes, count, number, near, masks = plan
    if not nbytes or screen_floats is None or data.nbytes < nbytes:
        return None
    for block in data.blocks():
        if len(block) < nbytes:
            return None
        ends = screen_floats(block, count, number, near)
        if ends is None:
            return None
        least, most = ends
        if least in masks:
            return None
        # By position: names cost half as much again. None are subnormal and zero.
        return TensorStats(count, 0, 0, 0, 0, 0, None, None, 0, least, most)
    return None
