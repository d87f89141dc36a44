# The C kernel (csrc/). `dumpscope.kernel` says what its functions are for.

from typing_extensions import Buffer

# The largest and smallest of some codes, seen as signed, then as unsigned numbers.
def screen(block: Buffer, count: int, itemsize: int, /) -> tuple[int, int, int, int]: ...

# The smallest and largest value of floats whose codes are all at most `near` (but for the sign),
# else None.
def screen_floats(
    block: Buffer, count: int, float_type: int, near: int, /
) -> tuple[float, float] | None: ...

# The counts of a `Tally` in the order of its fields, the extremes and the moments; None when
# squares of float64 values may leave the range of float64.
def tally(
    block: Buffer, count: int, float_type: int, near: int, /
) -> tuple[tuple[int, ...], tuple[int, int, int], tuple[int, float, float, float]] | None: ...

# `screen` of the bytes of an open file from `offset` on, which go through `buffer`, up to the first
# block with a code above `near` (but for the sign); None when they cannot be read.
def read_screen(
    descriptor: int, offset: int, count: int, itemsize: int, near: int, buffer: Buffer, /
) -> tuple[int, int, int, int] | None: ...

# `tally` of the bytes of an open file; None too when they cannot be read.
def read_tally(
    descriptor: int, offset: int, count: int, float_type: int, near: int, buffer: Buffer, /
) -> tuple[tuple[int, ...], tuple[int, int, int], tuple[int, float, float, float]] | None: ...

# Adds to 256 int64 how often each byte occurs.
def count_bytes(block: Buffer, counts: Buffer, /) -> None: ...

# The entries of an open folder that come next: names of files, of folders and of what is neither or
# must be looked at again, and 32 bytes for each file (`dumpscope.model.Portion`); None at the end.
def list_folder(descriptor: int, /) -> tuple[list[str], list[str], list[str], bytes] | None: ...

# What this processor can run, the best first.
def versions() -> list[str]: ...
def choose(version: str, /) -> None: ...
