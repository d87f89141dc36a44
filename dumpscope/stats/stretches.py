"""Large tensors that the kernel reads from their file and measures in one call.

For each block that Python asks for, a thread waits for the interpreter twice: that keeps two
threads from being twice as fast as one. The kernel does not say why it could not read something:
whoever gets `None` here asks for the blocks, and learns it from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dumpscope import kernel

if TYPE_CHECKING:
    from dumpscope.source import Stretch
    from dumpscope.stats.elements import Data
    from dumpscope.stats.exactstats import KernelTally

__all__ = ["read_extremes", "read_tally"]


def _stretch_of(data: Data) -> Stretch | None:
    stretch = getattr(data, "stretch", None)
    found: Stretch | None = None if stretch is None else stretch()
    return found


def read_extremes(
    data: Data, count: int, itemsize: int, near: int
) -> tuple[int, int, int, int] | None:
    """Read `count` numbers and return the extremes of their codes, as `kernel.screen` does.

    Where any code is above `near`, but for its sign, they are those up to that block.
    """
    read = kernel.read_screen
    stretch = None if read is None else _stretch_of(data)
    if read is None or stretch is None or count <= 0:
        return None
    ends: tuple[int, int, int, int] | None = read(
        stretch.descriptor, stretch.offset, count, itemsize, near, stretch.buffer
    )
    return ends


def read_tally(data: Data, count: int, float_type: int, near: int) -> KernelTally | None:
    """Read `count` floats and return what `kernel.tally` does."""
    read = kernel.read_tally
    stretch = None if read is None else _stretch_of(data)
    if read is None or stretch is None or count <= 0:
        return None
    found: KernelTally | None = read(
        stretch.descriptor, stretch.offset, count, float_type, near, stretch.buffer
    )
    return found
