"""What travels between a scan and the workers of its cluster, and that it is plain data.

A batch travels as a pickle inside bytes, which neither dask nor its scheduler looks into. What
comes back is a pickle too, but one that is only allowed to make the records that a scan consists
of: numbers, texts and containers of them. Nothing in it can call anything.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any, cast

from dumpscope.errors import ClusterError, PluginError
from dumpscope.model import (
    DumpFile,
    FileResult,
    GraphNode,
    OpRecord,
    OverflowRecord,
    OverflowUnit,
    Place,
    ReadFailure,
    TensorStats,
    TensorSummary,
)
from dumpscope.model.measured import MaskPattern
from dumpscope.processes import Recipe, ResultUnpickler

__all__ = [
    "FAILED",
    "OTHER_WORK",
    "RESULTS",
    "pack_batch",
    "read_results",
    "unpack_batch",
]

RESULTS, OTHER_WORK, FAILED = b"R", b"O", b"F"
"""How an answer begins: with results, with the signature of the work that the worker would do
instead, or with a sentence."""

_PLAIN = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        DumpFile,
        FileResult,
        GraphNode,
        MaskPattern,
        OpRecord,
        OverflowRecord,
        OverflowUnit,
        Place,
        ReadFailure,
        TensorStats,
        TensorSummary,
    )
}


def pack_batch(recipe: Recipe, batch: Sequence[DumpFile]) -> bytes:
    """Make the message for a batch."""
    content = pickle.dumps(batch, pickle.HIGHEST_PROTOCOL)
    return pickle.dumps((recipe, content), pickle.HIGHEST_PROTOCOL)


def unpack_batch(message: bytes) -> tuple[Recipe, bytes]:
    """Undo `pack_batch`, on the worker; the batch stays packed."""
    # From the scan that uses this worker, which could have it run anything.
    return cast("tuple[Recipe, bytes]", pickle.loads(message))  # noqa: S301


class _PlainUnpickler(ResultUnpickler):
    """Makes the records of a result, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module == ResultUnpickler.__module__:
            return super().find_class(module, name)
        kind = _PLAIN.get((module, name))
        if kind is None:
            raise PluginError(
                f"a worker sent a {module}.{name}, expected plain numbers and texts: a reader that "
                "is installed there puts it into its records; uninstall it, or report it to its "
                "authors"
            )
        return kind


def read_results(content: bytes, batch: Sequence[DumpFile]) -> list[FileResult]:
    """Make the results of a batch out of what came back.

    Raises
    ------
    PluginError
        They hold something that is no plain data.
    ClusterError
        They are none, or not those of this batch.
    """
    try:
        found = _PlainUnpickler(io.BytesIO(content), batch).load()
    except (pickle.UnpicklingError, EOFError, LookupError, TypeError, ValueError) as error:
        raise ClusterError(f"a worker sent results that cannot be read: {error}") from error
    if isinstance(found, str):
        raise ClusterError(f"on a worker: {found}")
    if (
        not isinstance(found, list)
        or not all(isinstance(result, FileResult) for result in found)
        or [id(result.file) for result in found] != [id(file) for file in batch]
    ):
        raise ClusterError("a worker sent results of other files than it was given")
    return found
