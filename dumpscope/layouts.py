"""Memory layouts: GE's format codes, and the logical shape behind a blocked one.

An NPU keeps many tensors in blocks of C0 (usually 16) elements. The dumped shape is then the
blocked one and `original_shape` the logical one; what the blocks hold beyond it is padding,
which is uninitialised memory. Only here is known which elements these are.

================  ================================  =============================================
layout            stored shape                      logical shape, before the cut
================  ================================  =============================================
NC1HWC0           N, C1, H, W, C0                   N, C1·C0, H, W
FRACTAL_NZ        …, W1, H1, H0, W0                 …, H1·H0, W1·W0
FRACTAL_Z         C1·H·W, N1, N0, C0                N1·N0, C1·C0, H, W
NDC1HWC0          N, D, C1, H, W, C0                N, C1·C0, D, H, W
FRACTAL_Z_3D      D·C1·H·W, N1, N0, C0              N1·N0, C1·C0, D, H, W
================  ================================  =============================================

FRACTAL_NZ_C0_* are FRACTAL_NZ, NC1HWC0_C04 is NC1HWC0. C0 is the last blocked dimension and
never derived from the type. `original_shape` may be in another order than the one above
(NHWC, HWCN, NDHWC, DHWCN) and the dump does not say in which: `match_axes` finds out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dumpscope.errors import CorruptDumpError
from dumpscope.records import record

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Geometry", "groups_of", "layout_name", "plain", "plan_geometry"]

_LAYOUTS = (
    *("NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1C0HWPAD", "NHWC1C0", "FSR_NCHW"),
    *("FRACTAL_DECONV", "C1HWNC0", "FRACTAL_DECONV_TRANSPOSE", "FRACTAL_DECONV_SP_STRIDE_TRANS"),
    *("NC1HWC0_C04", "FRACTAL_Z_C04", "CHWN", "FRACTAL_DECONV_SP_STRIDE8_TRANS", "HWCN"),
    *("NC1KHKWHWC0", "BN_WEIGHT", "FILTER_HWCK", "HASHTABLE_LOOKUP_LOOKUPS"),
    *("HASHTABLE_LOOKUP_KEYS", "HASHTABLE_LOOKUP_VALUE", "HASHTABLE_LOOKUP_OUTPUT"),
    *("HASHTABLE_LOOKUP_HITS", "C1HWNCoC0", "MD", "NDHWC", "FRACTAL_ZZ", "FRACTAL_NZ", "NCDHW"),
    *("DHWCN", "NDC1HWC0", "FRACTAL_Z_3D", "CN", "NC", "DHWNC", "FRACTAL_Z_3D_TRANSPOSE"),
    *("FRACTAL_ZN_LSTM", "FRACTAL_Z_G", "RESERVED", "ALL", "NULL", "ND_RNN_BIAS"),
    *("FRACTAL_ZN_RNN", "NYUV", "NYUV_A", "NCL", "FRACTAL_Z_WINO", "C1HWC0", "FRACTAL_NZ_C0_16"),
    *("FRACTAL_NZ_C0_32", "FRACTAL_NZ_C0_2", "FRACTAL_NZ_C0_4", "FRACTAL_NZ_C0_8"),
)
"""GE's names, at the index that is their code."""

_2D_ORDERS = ("NCHW", "NHWC", "HWCN")
_3D_ORDERS = ("NCDHW", "NDHWC", "DHWCN")


def layout_name(code: int) -> str:
    """Return GE's name of a format code (its low 8 bits), `format<N>` for an unknown one."""
    base = code & 0xFF
    return _LAYOUTS[base] if base < len(_LAYOUTS) else f"format{base}"


def groups_of(code: int) -> int:
    """Return the sub-format in bits 8-23 of a format code: the number of groups."""
    return code >> 8 & 0xFFFF


@record(frozen=True, slots=True)
class Geometry:
    """How the elements of one tensor lie in memory.

    Attributes
    ----------
    stored_shape, shape
        The shape in memory and the logical one.
    split_shape
        For blocked tensors the stored shape with joined dimensions (C1·H·W) taken apart.
    merges
        For every logical axis the axes of `split_shape` that make it up, outermost first; its
        first `shape[axis]` positions are elements, the others padding. Of an axis of
        `split_shape` that makes up none only position 0 is.
    notes
        What had to be assumed, or why a blocked tensor is shown raw.
    plans
        What `stats` worked out for tensors of this geometry, by the name of their type.
    """

    layout: str
    stored_shape: tuple[int, ...]
    shape: tuple[int, ...]
    split_shape: tuple[int, ...] | None = None
    merges: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()
    plans: dict[str, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def blocked(self) -> bool:
        """Whether the elements lie in another order than the logical one."""
        return self.split_shape is not None

    @property
    def stored_count(self) -> int:
        """How many elements lie in memory, padding included."""
        return math.prod(self.stored_shape)

    @property
    def count(self) -> int:
        """How many elements the tensor has, without padding."""
        return math.prod(self.shape)

    @property
    def padded(self) -> bool:
        """Whether some of the stored elements are padding."""
        return self.split_shape is not None and self.stored_count != self.count

    def extent(self, axis: int) -> int:
        """Return the length of a logical axis before the cut to `shape[axis]`."""
        if self.split_shape is None:
            return self.shape[axis]
        return math.prod(self.split_shape[part] for part in self.merges[axis])

    def to_logical(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Rearrange `stored_count` flat elements into an array of the logical shape.

        Raises
        ------
        CorruptDumpError
            The shape has more dimensions than an array can have.
        """
        try:
            if self.split_shape is None:
                return stored.reshape(self.shape)
            order = [part for parts in self.merges for part in parts]
            left = [part for part in range(len(self.split_shape)) if part not in order]
            whole = [self.extent(axis) for axis in range(len(self.shape))]
            blocks = stored.reshape(self.split_shape).transpose(left + order)
            blocks = blocks[(0,) * len(left)].reshape(whole)
            cut: npt.NDArray[Any] = blocks[tuple(map(slice, self.shape))]
        except ValueError as error:
            raise CorruptDumpError(
                f"{stored.size} elements cannot take the shape {self.stored_shape}: {error}"
            ) from error
        return cut


def plain(shape: Sequence[int], layout: str = "ND") -> Geometry:
    """Return the geometry of a tensor whose memory order is its logical order."""
    dims = tuple(shape)
    return Geometry(layout, dims, dims)


def plan_geometry(
    layout: str,
    stored_shape: Sequence[int],
    original_shape: Sequence[int] | None = None,
    *,
    origin_layout: str | None = None,
    groups: int = 0,
) -> Geometry:
    """Work out the logical shape of a tensor, and where its elements lie.

    Parameters
    ----------
    layout
        GE's name of the memory layout.
    stored_shape, original_shape
        As the header has them. Without an original shape all of a blocked tensor is logical.
    origin_layout
        The layout of `original_shape` where it is recorded; it decides only what the numbers
        leave open.
    groups
        The sub-format. A FRACTAL_Z tensor of several groups is laid out otherwise and stays raw.

    Returns
    -------
    Geometry
        Shapes that contradict each other give a raw geometry with a note, never an error.
    """
    stored = tuple(stored_shape)
    planner = _PLANNERS.get(layout.upper())
    if planner is None and layout.upper().startswith("FRACTAL_NZ_C0_"):
        planner = _plan_nz
    if planner is None:
        return Geometry(layout, stored, stored)
    original = tuple(original_shape or ())
    if not original:
        return Geometry(layout, stored, stored, notes=("no original shape: padding is unknown",))
    if groups > 1 and planner in (_plan_z, _plan_z_3d):
        why = f"{layout} of {groups} groups is shown as it is stored: padding is unknown"
        return Geometry(layout, stored, stored, notes=(why,))
    planned = planner(layout, stored, original, (origin_layout or "").upper())
    if planned is None:
        why = (
            f"the original shape {_show(original)} does not fit the stored shape "
            f"{_show(stored)} of {layout}, shown as it is stored: padding is unknown"
        )
        return Geometry(layout, stored, stored, notes=(why,))
    return planned


def _show(shape: tuple[int, ...]) -> str:
    text = "x".join(map(str, shape[:16]))
    return text if len(shape) <= 16 else f"{text}x…"


def _plan_nz(
    layout: str, stored: tuple[int, ...], original: tuple[int, ...], _: str
) -> Geometry | None:
    """…, W1, H1, H0, W0 <- …, H, W; a vector is one row."""
    if len(stored) < 4:
        return None
    matrix = original if len(original) > 1 else (1, *original)
    lead = stored[:-4]
    rank = len(lead)
    w1, h1, h0, w0 = stored[-4:]
    if not (_fits(matrix[-2], h1, h0) and _fits(matrix[-1], w1, w0)):
        return None
    merges: list[tuple[int, ...]] = []
    if lead == matrix[:-2]:
        merges.extend((axis,) for axis in range(rank))
    elif _without_leading_ones(lead) == _without_leading_ones(matrix[:-2]):
        ones = len(matrix) - 2 - rank
        merges.extend(() if axis < ones else (axis - ones,) for axis in range(len(matrix) - 2))
    else:
        return None
    merges.append((rank + 1, rank + 2))
    merges.append((rank, rank + 3))
    if len(original) < 2:
        merges = merges[1:]
    return Geometry(layout, stored, original, stored, tuple(merges))


def _without_leading_ones(dims: tuple[int, ...]) -> tuple[int, ...]:
    start = 0
    while start < len(dims) and dims[start] == 1:
        start += 1
    return dims[start:]


def _fits(size: int, outer: int, inner: int) -> bool:
    return 0 <= size <= outer * inner


def _plan_5hd(
    layout: str, stored: tuple[int, ...], original: tuple[int, ...], origin: str
) -> Geometry | None:
    """N, C1, H, W, C0."""
    if len(stored) != 5:
        return None
    n, c1, h, w, c0 = stored
    parts = {"N": (0,), "C": (1, 4), "H": (2,), "W": (3,)}
    # GE widens a vector of channels, and a matrix of batch and channels, to four dimensions.
    if h == w == 1 and (len(original) == 2 or (len(original) == 1 and n == 1)):
        letters = "NC"[-len(original) :]
        if _fits(original[-1], c1, c0) and (len(original) == 1 or original[0] == n):
            merges = tuple(parts[letter] for letter in letters)
            return Geometry(layout, stored, original, stored, merges)
    found = _match_axes(original, _2D_ORDERS, {"N": n, "H": h, "W": w}, {"C": (c1, c0)}, origin)
    return _arranged(layout, stored, stored, original, parts, found)


def _plan_6hd(
    layout: str, stored: tuple[int, ...], original: tuple[int, ...], origin: str
) -> Geometry | None:
    """N, D, C1, H, W, C0."""
    if len(stored) != 6:
        return None
    n, d, c1, h, w, c0 = stored
    exact = {"N": n, "D": d, "H": h, "W": w}
    parts = {"N": (0,), "D": (1,), "C": (2, 5), "H": (3,), "W": (4,)}
    found = _match_axes(original, _3D_ORDERS, exact, {"C": (c1, c0)}, origin)
    return _arranged(layout, stored, stored, original, parts, found)


def _plan_z(
    layout: str, stored: tuple[int, ...], original: tuple[int, ...], origin: str
) -> Geometry | None:
    """C1·H·W, N1, N0, C0."""
    return _plan_fractal_z(layout, stored, original, origin, "CHW", _2D_ORDERS)


def _plan_z_3d(
    layout: str, stored: tuple[int, ...], original: tuple[int, ...], origin: str
) -> Geometry | None:
    """D·C1·H·W, N1, N0, C0."""
    return _plan_fractal_z(layout, stored, original, origin, "DCHW", _3D_ORDERS)


def _plan_fractal_z(
    layout: str,
    stored: tuple[int, ...],
    original: tuple[int, ...],
    origin: str,
    joined: str,
    orders: tuple[str, ...],
) -> Geometry | None:
    if len(stored) != 4:
        return None
    outer, n1, n0, c0 = stored
    found = _match_axes(original, orders, {}, {"N": (n1, n0), "C": (0, c0)}, origin, outer)
    if found is None:
        return None
    sizes = dict(zip(found[0], original, strict=True))
    spatial = math.prod(size for letter, size in sizes.items() if letter not in "NC")
    sizes["C"] = outer // spatial if spatial else 0
    split = (*(sizes[letter] for letter in joined), n1, n0, c0)
    first = len(joined)
    parts: dict[str, tuple[int, ...]] = {letter: (at,) for at, letter in enumerate(joined)}
    parts["C"] = (joined.index("C"), first + 2)
    parts["N"] = (first, first + 1)
    return _arranged(layout, stored, split, original, parts, found)


def _arranged(
    layout: str,
    stored: tuple[int, ...],
    split: tuple[int, ...],
    original: tuple[int, ...],
    parts: dict[str, tuple[int, ...]],
    found: tuple[str, tuple[str, ...]] | None,
) -> Geometry | None:
    if found is None:
        return None
    order, notes = found
    return Geometry(layout, stored, original, split, tuple(parts[axis] for axis in order), notes)


def _match_axes(
    original: tuple[int, ...],
    orders: tuple[str, ...],
    exact: dict[str, int],
    blocks: dict[str, tuple[int, int]],
    origin: str,
    joined: int | None = None,
) -> tuple[str, tuple[str, ...]] | None:
    """Find in which order `original` names its axes.

    Parameters
    ----------
    exact
        Axes that must have exactly this length.
    blocks
        Axes that must fit into so many blocks of such a length.
    joined
        The product of the blocks of C and all axes but N, where these are stored as one.

    Returns
    -------
    tuple
        The order, and a note when more than one fits; `None` when none does.
    """
    fitting: list[tuple[bool, str]] = []
    for order in orders:
        if len(order) != len(original):
            continue
        sizes = dict(zip(order, original, strict=True))
        if any(sizes[axis] != size for axis, size in exact.items()):
            continue
        needed = dict(blocks)
        if joined is not None:
            spatial = math.prod(size for axis, size in sizes.items() if axis not in "NC")
            if spatial == 0 or joined % spatial:
                continue
            needed["C"] = (joined // spatial, blocks["C"][1])
        if not all(_fits(sizes[axis], *block) for axis, block in needed.items()):
            continue
        tight = all(sizes[axis] > (outer - 1) * inner for axis, (outer, inner) in needed.items())
        fitting.append((tight, order))
    # Blocks that a shorter axis would not have needed are possible, but the worse explanation.
    best = [order for tight, order in fitting if tight] or [order for _, order in fitting]
    if not best:
        return None
    # Axes of length 1 may trade places without anybody noticing.
    readings = {
        tuple(axis if size > 1 else "" for axis, size in zip(order, original, strict=True))
        for order in best
    }
    if len(readings) == 1:
        return best[0], ()
    chosen = origin if origin in best else best[0]
    note = (
        f"the axes of the original shape {_show(original)} may be {' or '.join(best)}: "
        f"taken as {chosen}"
    )
    return chosen, (note,)


_PLANNERS = {
    "NC1HWC0": _plan_5hd,
    "NC1HWC0_C04": _plan_5hd,
    "NDC1HWC0": _plan_6hd,
    "FRACTAL_NZ": _plan_nz,
    "FRACTAL_Z": _plan_z,
    "FRACTAL_Z_3D": _plan_z_3d,
}
