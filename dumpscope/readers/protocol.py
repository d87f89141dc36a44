"""What a reader is, and what it yields.

A reader says from a file's first bytes and its name whether the file is its own (`sniff`), and
turns the file into records (`read`). It never allocates from a number in the file before
checking it against the file's size, and nothing but `DumpReadError` leaves it.

Records are lazy: a `TensorRecord` knows where its bytes are, not what they hold, so a 4 GiB
tensor costs nothing until something streams it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, Union

from dumpscope.errors import DumpReadError, UnsupportedDtypeError
from dumpscope.layouts import Geometry
from dumpscope.model import (
    FORM_RAW,
    DumpFile,
    GraphNode,
    Match,
    OverflowRecord,
    Role,
    TensorStats,
)
from dumpscope.records import record
from dumpscope.source import DumpSource, Stretch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Execution",
    "FileSlice",
    "MemoryData",
    "Reader",
    "Record",
    "TensorData",
    "TensorRecord",
]


class TensorData(Protocol):
    """Where the bytes of one tensor are. `nbytes` is their number."""

    @property
    def nbytes(self) -> int: ...

    def blocks(self) -> Iterator[memoryview]:
        """Yield the bytes from the start in consecutive blocks, each valid until the next."""


@record(frozen=True, slots=True)
class FileSlice:
    """`nbytes` bytes from `offset` of a file."""

    source: DumpSource
    offset: int
    nbytes: int

    def blocks(self) -> Iterator[memoryview]:
        return self.source.blocks(self.offset, self.nbytes)

    def stretch(self) -> Stretch | None:
        """Say where the bytes lie, when the kernel may read them itself."""
        stretch = getattr(self.source, "stretch", None)  # sources behind URLs have none
        return None if stretch is None else stretch(self.offset, self.nbytes)


@record(frozen=True, slots=True)
class MemoryData:
    """Bytes that had to be decoded into memory (compressed or rearranged ones)."""

    content: bytes | memoryview

    @property
    def nbytes(self) -> int:
        return len(self.content)

    def blocks(self) -> Iterator[memoryview]:
        view = memoryview(self.content)
        for start in range(0, len(view), 1 << 20):
            yield view[start : start + (1 << 20)]


@record(frozen=False, slots=True)
class TensorRecord:
    """One tensor of an execution: what the header says, and where the bytes are.

    Attributes
    ----------
    role, index
        Input or output, and its position among them.
    dtype
        Name as numpy and ml_dtypes spell it, plus `hifloat8`, `complex32`, `string`,
        `float6_e3m2fn` and the like; `undefined` or `dtype<N>` when it is not known.
    geometry
        Layout, stored shape and logical shape (`geometry.shape`, in original_shape's order).
    data
        The bytes, of `missing_bytes` fewer than shape and dtype ask when truncated; `None` when
        there are none.
    stats
        Statistics that the writer computed, for formats which hold no values.
    unchecked
        A reason code when the values cannot be read: the tensor then is unchecked.
    dumped
        False when the writer left the bytes out on purpose.
    """

    role: Role
    index: int
    dtype: str
    geometry: Geometry
    data: TensorData | None = None
    stats: TensorStats | None = None
    unchecked: str | None = None
    dumped: bool = True
    size_bytes: int = 0
    missing_bytes: int = 0
    address: int = 0
    offset: int = 0
    name: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.geometry.shape

    @property
    def layout(self) -> str:
        """GE's name of the memory layout ("ND", "NC1HWC0", …)."""
        return self.geometry.layout

    def load(self) -> npt.NDArray[np.generic]:
        """Decode the values into a read-only array of the logical shape.

        Scalars stay 0-d. dtypes without a numpy type come as the ml_dtypes one; hifloat8 and
        packed 6-bit floats come as float32, complex32 as complex64.

        Raises
        ------
        UnsupportedDtypeError
            There are no values, or no way to decode them.
        DumpReadError
            The bytes are not all there.
        """
        from dumpscope.decoding import decode
        from dumpscope.dtypes import dtype_named

        if self.data is None or self.unchecked is not None:
            why = self.unchecked or "not_dumped"
            raise UnsupportedDtypeError(f"{self.role} {self.index} holds no values: {why}")
        if self.missing_bytes:
            raise DumpReadError(
                f"{self.role} {self.index} lacks {self.missing_bytes} bytes at its end"
            )
        raw = b"".join(bytes(block) for block in self.data.blocks())
        stored = decode(raw, dtype_named(self.dtype), self.geometry.stored_count)
        logical = self.geometry.to_logical(stored)
        logical.flags.writeable = False
        return logical


@record(frozen=False, slots=True)
class Execution:
    """One operator execution, or the part of one that a file holds (`partial`).

    `timestamp` is the number as the writer wrote it; `order` counts records of formats that have
    no time. `container` marks modules, which contain other operators.
    """

    op_type: str
    op_name: str
    tensors: list[TensorRecord] = field(default_factory=list)
    task_id: int | None = None
    stream_id: int | None = None
    timestamp: int | None = None
    context_id: int | None = None
    thread_id: int | None = None
    order: int = 0
    form: int = FORM_RAW
    partial: bool = False
    container: bool = False
    parent: str | None = None
    stack: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    step: int | None = None
    rank: int | None = None


Record = Union[Execution, OverflowRecord, GraphNode, DumpReadError]
"""What a reader yields; a yielded `DumpReadError` is a fault after which reading went on."""


class Reader(Protocol):
    """A format. Built-in readers and plugins are found and used the same way.

    Attributes
    ----------
    name
        Short and unique: `--reader NAME`.
    formats
        What it reads, for `dumpscope readers`.
    versions
        Which versions of the writers it knows.
    companions
        File name -> folder beside it whose files belong to that file and are read through it
        (`{"dump.json": "dump_tensor_data"}`): the walk does not offer them apart.
    """

    name: str
    formats: str
    versions: str
    companions: Mapping[str, str]

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Say from the first bytes and the name whether the file is this reader's."""

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield the records of a file that `sniff` claimed.

        Raises `DumpReadError` where reading cannot go on.
        """


ReaderFactory = Callable[[], Reader]
