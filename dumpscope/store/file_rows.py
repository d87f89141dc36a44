"""What files gave, as rows of the store."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from dumpscope.errors import StorageReadError
from dumpscope.model import (
    FileResult,
    GraphNode,
    OpRecord,
    OverflowRecord,
    Place,
    ReadFailure,
)
from dumpscope.store.batches import insert_batch
from dumpscope.store.encoding import (
    bindable,
    dump_json,
    encode_tensor,
    kind_head,
    kind_stats,
)
from dumpscope.store.identity import AwaitedBatch, IdentityMaker
from dumpscope.store.shared_rows import SharedRows

__all__ = ["FileRows", "insert_rows"]

Row = tuple[Any, ...]

_op_start: Callable[[OpRecord], Row] = attrgetter(
    "step", "device", "start_ns", "task_id", "stream_id", "context_id", "thread_id", "order",
    "timestamp", "op_type", "op_name",
)  # fmt: skip
_op_rest: Callable[[OpRecord], Row] = attrgetter(
    "container", "parent", "stack", "attributes", "reader", "file"
)


class FileRows:
    """Collects the rows of some files, to be inserted in one transaction that has begun."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        shared: SharedRows,
        scan_no: int,
        identity: IdentityMaker,
    ) -> None:
        shared.refresh()
        self._connection = connection
        self._shared = shared
        self._scan_no = scan_no
        self._identity = identity
        self._origin_id = shared.origin_id(identity.root, identity.signature)
        self._place: Place | None = None
        self._place_id = 0
        self._next_file = _next_number(connection, "SELECT max(file_id) FROM files")
        self._next_op = _next_number(connection, "SELECT max(op_id) FROM ops")
        self._files: list[Row] = []
        self._links: list[Row] = []
        self._ops: list[Row] = []
        self._overflow: list[Row] = []
        self._graph: list[Row] = []
        self._failures: list[Row] = []
        self._batches: list[AwaitedBatch] = []

    def take(self, result: FileResult) -> None:
        """Make the rows of one file."""
        file = result.file
        if file.place is not self._place:
            self._place = file.place
            self._place_id = self._shared.place_id(file.place)
        file_id = self._next_file
        self._next_file += 1
        first_op = self._next_op
        tensors = unchecked = 0
        usual = (False, None, (), (), result.reader, file.relative)
        for op in result.ops:
            tensors += len(op.tensors)
            unchecked += self._take_op(op, file_id, usual)
        identity: bytes | None
        identity, batch = self._identity.take(file)
        has_more = bool(result.overflow or result.graph or result.failures)
        if has_more:
            self._take_more(result, file_id)
            if any(_is_os_error(failure.error) for failure in result.failures):
                identity = None
        if batch is not None and identity is not None:
            batch.stored.append((file_id, identity))
            if batch.is_whole:
                self._batches.append(batch)
        self._files.append(
            (
                file_id,
                identity,
                self._origin_id,
                self._place_id,
                file.relative,
                file.size,
                result.reader,
                result.known,
                result.auxiliary,
                result.bytes_read,
                first_op,
                self._next_op - first_op,
                tensors,
                unchecked,
                has_more,
                dump_json(result.notes) if result.notes else None,
            )
        )
        self._links.append((self._scan_no, file_id))

    def insert(self) -> None:
        """Write all rows."""
        connection = self._connection
        self._shared.insert_kinds()
        insert_rows(connection, "ops", self._ops)
        insert_rows(connection, "files", self._files)
        insert_rows(connection, "scan_files", self._links)
        insert_rows(connection, "overflow", self._overflow)
        insert_rows(connection, "graph", self._graph)
        insert_rows(connection, "failures", self._failures)
        for batch in self._batches:
            insert_batch(connection, batch, self._shared.generation)

    def _take_op(self, op: OpRecord, file_id: int, usual: Row) -> int:
        """Make the row of an operator. Returns how many of its tensors are unchecked."""
        notable = False
        unchecked = 0
        parts = []
        kinds = self._shared.kinds
        for tensor in op.tensors:
            stats = tensor.stats
            kind = (kind_head(tensor), kind_stats(stats))
            known = kinds.get(kind) or self._shared.add_kind(kind, tensor)
            if known[1]:
                notable = True
            if known[2]:
                unchecked += 1
            parts.append(encode_tensor(tensor, known[0]))
        rest = _op_rest(op)
        self._ops.append(
            (
                self._next_op,
                file_id,
                self._place_id if op.place is self._place else self._shared.place_id(op.place),
                notable,
                op.partial,
                op.form,
                len(parts),
                unchecked,
                *_op_start(op),
                None if rest == usual else _rest_content(rest, usual),
                b"".join(parts),
            )
        )
        self._next_op += 1
        return unchecked

    def _take_more(self, result: FileResult, file_id: int) -> None:
        """Make the rows of what few files have."""
        relative = result.file.relative
        for record in result.overflow:
            self._take_overflow(record, file_id, relative)
        for node in result.graph:
            self._take_node(node, file_id, relative)
        for failure in result.failures:
            self._take_failure(failure, file_id)

    def _take_overflow(self, record: OverflowRecord, file_id: int, relative: str) -> None:
        units = [
            (u.kind, u.status, u.model_id, u.stream_id, u.task_id, u.context_id, u.thread_id,
             u.fields)
            for u in record.units
        ]  # fmt: skip
        self._overflow.append(
            (None, file_id, self._shared.place_id(record.place), record.empty, record.known_kind,
             record.timestamp, record.start_ns,
             None if record.file == relative else record.file, dump_json(units))
        )  # fmt: skip

    def _take_node(self, node: GraphNode, file_id: int, relative: str) -> None:
        self._graph.append(
            (None, file_id, node.name, node.op_type, node.order,
             None if node.file == relative else node.file,
             dump_json((node.inputs, node.original_names)))
        )  # fmt: skip

    def _take_failure(self, failure: ReadFailure, file_id: int) -> None:
        self._failures.append(
            (None, file_id, None, failure.file, failure.reader, failure.error, failure.offset,
             failure.message)
        )  # fmt: skip


def _rest_content(rest: Row, usual: Row) -> bytes:
    """Encode what most operators do not have; what they share with their file is left out."""
    own = (None if a == b else a for a, b in zip(rest[4:], usual[4:], strict=True))
    return dump_json((*rest[:4], *own))


_INSERTS = {
    table: f"INSERT INTO {table} VALUES({','.join('?' * columns)})"
    for table, columns in (
        ("ops", 21), ("files", 16), ("scan_files", 2), ("overflow", 9), ("graph", 7),
        ("failures", 8),
    )
}  # fmt: skip


def insert_rows(connection: sqlite3.Connection, table: str, rows: Sequence[Row]) -> None:
    """Insert whole rows; only when one holds what SQLite cannot, all values are looked at."""
    if not rows:
        return
    connection.execute("SAVEPOINT rows")
    try:
        connection.executemany(_INSERTS[table], rows)
    except (OverflowError, UnicodeEncodeError):
        connection.execute("ROLLBACK TO rows")
        connection.executemany(_INSERTS[table], _bindable_rows(rows))
    connection.execute("RELEASE rows")


def _bindable_rows(rows: Iterable[Row]) -> Iterable[Row]:
    return (tuple(map(bindable, row)) for row in rows)


def _next_number(connection: sqlite3.Connection, question: str) -> int:
    return int(connection.execute(question).fetchone()[0] or 0) + 1


def _is_os_error(name: str) -> bool:
    if name == StorageReadError.__name__:
        return True
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, OSError)
