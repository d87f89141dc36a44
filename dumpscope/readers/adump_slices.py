"""Which slice of a tensor one thread of an FFTS+ operator holds.

The first attribute of such a dump is JSON::

    {"threadMode": …, "input_tensor_slice": [thread][i][dim]{"lower": …, "higher": …},
     "output_tensor_slice": the same}

The shape of the slice is `higher - lower` in every dim.
"""

from __future__ import annotations

import json
from dataclasses import field

from dumpscope.model import DumpName, Role
from dumpscope.readers.adump_schema import Header
from dumpscope.records import record

__all__ = ["ThreadSlices", "read_slices"]

_MAX_DIM = 1 << 62
_MAX_DIMS = 32


@record(frozen=True, slots=True)
class ThreadSlices:
    """What one thread holds of every input and output: lists of dims, as the JSON has them."""

    tensors: dict[str, list[object]] = field(default_factory=dict)

    def shape_of(self, role: Role, index: int) -> tuple[int, ...] | None:
        """Return the shape of the thread's part of one tensor, `None` where it is not listed."""
        tensors = self.tensors.get(role, [])
        dims = tensors[index] if index < len(tensors) else None
        if not isinstance(dims, list) or len(dims) > _MAX_DIMS:
            return None
        shape = tuple(_length(dim) for dim in dims)
        return None if -1 in shape else shape


def read_slices(header: Header, name: DumpName | None) -> ThreadSlices:
    """Read the attribute of a header that lists the slices; it is the first where there is one.

    Parameters
    ----------
    name
        The file's name, which says which thread it is of.
    """
    values = [item.value for item in header.attr if b"tensor_slice" in item.value]
    if not values:
        return ThreadSlices()
    try:
        document = json.loads(values[0])
    except (ValueError, RecursionError):
        return ThreadSlices()
    if not isinstance(document, dict):
        return ThreadSlices()
    thread = name.thread_id if name is not None and name.thread_id is not None else 0
    found: dict[str, list[object]] = {}
    for role in ("input", "output"):
        threads = document.get(f"{role}_tensor_slice")
        if not isinstance(threads, list) or not threads:
            continue
        # The manual thread mode lists its one slice only.
        at = 0 if len(threads) == 1 else thread
        if at < len(threads) and isinstance(threads[at], list):
            found[role] = threads[at]
    return ThreadSlices(found)


def _length(dim: object) -> int:
    """Return the length of one dim, -1 where it is none."""
    if not isinstance(dim, dict):
        return -1
    lower, higher = dim.get("lower"), dim.get("higher")
    if type(lower) is not int or type(higher) is not int or not 0 <= lower <= higher < _MAX_DIM:
        return -1
    return higher - lower
