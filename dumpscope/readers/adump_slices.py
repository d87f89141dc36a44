"""Which slice of a tensor one thread of an FFTS+ operator holds.

The first attribute of such a dump is JSON::

    {"threadMode": …, "input_tensor_slice": [thread][i][dim]{"lower": …, "higher": …},
     "output_tensor_slice": the same}

The shape of the slice is `higher - lower` in every dim.
"""

from __future__ import annotations

import json

from dumpscope.model import DumpName, Role
from dumpscope.readers.adump_schema import Header

__all__ = ["slice_shape"]

_MAX_DIM = 1 << 62
_MAX_DIMS = 32


def slice_shape(
    header: Header, role: Role, index: int, name: DumpName | None
) -> tuple[int, ...] | None:
    """Return the shape that one thread's part of a tensor has.

    Returns
    -------
    tuple of int or None
        `None` where the attributes do not tell.
    """
    if not header.attr:
        return None
    value = header.attr[0].value
    if b"tensor_slice" not in value:
        return None
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return None
    threads = document.get(f"{role}_tensor_slice") if isinstance(document, dict) else None
    if not isinstance(threads, list) or not threads:
        return None
    thread = name.thread_id if name is not None and name.thread_id is not None else 0
    # A manual thread mode lists its one slice only.
    tensors = (
        threads[thread] if thread < len(threads) else threads[0] if len(threads) == 1 else None
    )
    if not isinstance(tensors, list) or index >= len(tensors):
        return None
    dims = tensors[index]
    if not isinstance(dims, list) or len(dims) > _MAX_DIMS:
        return None
    shape = tuple(_length(dim) for dim in dims)
    return None if -1 in shape else shape


def _length(dim: object) -> int:
    """Return the length of one dim, -1 where it is none."""
    if not isinstance(dim, dict):
        return -1
    lower, higher = dim.get("lower"), dim.get("higher")
    if type(lower) is not int or type(higher) is not int or not 0 <= lower <= higher < _MAX_DIM:
        return -1
    return higher - lower
