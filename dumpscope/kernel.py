"""The kernel in C, for statistics and for listing folders.

It is there where a compiler was when dumpscope was installed. Its functions are `None` without it;
NumPy and `os.scandir` then give the same. So it is where the variable `DUMPSCOPE_NO_KERNEL` is set
to anything but an empty text.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "FLOAT_TYPES",
    "count_bytes",
    "describe_kernel",
    "list_folder",
    "read_screen",
    "read_tally",
    "screen",
    "screen_floats",
    "tally",
]

NO_KERNEL = "DUMPSCOPE_NO_KERNEL"

FLOAT_TYPES = {"float16": 0, "bfloat16": 1, "float32": 2, "float64": 3}
"""The float types that `screen_floats` and `tally` know, and their numbers there."""


def _load() -> tuple[ModuleType | None, str]:
    if os.environ.get(NO_KERNEL):
        return None, f"not used: {NO_KERNEL} is set"
    try:
        from dumpscope import _kernel
    except ImportError as error:
        return None, (
            f"not there ({error}): statistics are computed by NumPy; install dumpscope again "
            "with a C compiler and Python's headers for faster ones"
        )
    return _kernel, "in use"


_module, _state = _load()

screen = None if _module is None else _module.screen
screen_floats = None if _module is None else _module.screen_floats
tally = None if _module is None else _module.tally
count_bytes = None if _module is None else _module.count_bytes
# These are not there on every system.
list_folder = getattr(_module, "list_folder", None)
read_screen = getattr(_module, "read_screen", None)
read_tally = getattr(_module, "read_tally", None)


def describe_kernel() -> str:
    """Say in one line whether the kernel is used, in which version, or why not."""
    if _module is None:
        return _state
    return f"{_state}, version {_module.versions()[0]}"
