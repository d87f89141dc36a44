"""Putting a scan into the store.

Every call is one transaction: what it was given is there afterwards, whole, or not at all.
Numbers of rows are given out here, inside the transaction, so that nothing is read back and two
scans can write at the same time.
"""

from __future__ import annotations

import builtins
import hashlib
import secrets
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from operator import attrgetter
from typing import Any, Literal

from dumpscope.model import (
    DumpFile,
    FileResult,
    GraphNode,
    OpRecord,
    OverflowRecord,
    Place,
    ReadFailure,
    ScanOptions,
    TensorSummary,
)
from dumpscope.store.encoding import (
    Kind,
    bindable,
    dump_json,
    encode_tensor,
    kind_content,
    kind_of,
)
from dumpscope.store.opening import StoreConnection, told

__all__ = ["StoreWriting", "file_identity"]

_KINDS_KEPT = 1 << 15
_BATCH_LOOKUP = 500

_OP = "INSERT INTO ops VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
_op_start = attrgetter("step", "device", "start_ns", "task_id", "stream_id", "order", "timestamp",
                       "op_type", "op_name")  # fmt: skip
_op_rest = attrgetter("context_id", "thread_id", "form", "container", "parent", "stack",
                      "attributes")  # fmt: skip
_USUAL_REST = (None, None, 0, False, None, (), ())


class StoreWriting(StoreConnection):
    """The writing half of `Store`."""

    def __init__(self, connection: sqlite3.Connection, path: str, journal: str) -> None:
        super().__init__(connection, path, journal)
        self._kinds: dict[Kind, int] = {}
        self._place_ids: dict[Place, int] = {}
        self._origins: dict[tuple[str, str], int] = {}
        self._seen_version = -1

    # --- a scan's life ------------------------------------------------------------------------

    def begin(
        self,
        root: str,
        sources: Sequence[str],
        options: ScanOptions,
        config: Mapping[str, object] | None,
        tool_version: str,
    ) -> str:
        """Start a scan of `sources`, whose common parent is `root`. Returns its id.

        Ids sort by the time (UTC) at which their scans began.
        """
        now = datetime.now(timezone.utc)
        scan_id = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        row = (
            scan_id,
            bindable(root),
            dump_json(list(sources)),
            dump_json(asdict(options)),
            None if config is None else dump_json(config),
            tool_version,
            now.isoformat(timespec="seconds"),
        )
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO scans(scan_id, root, sources, options, config, tool_version, state,"
                " started_at) VALUES(?,?,?,?,?,?,'running',?)",
                row,
            )
        return scan_id

    def finish(
        self,
        scan_id: str,
        totals: Mapping[str, object],
        duration_s: float,
        state: Literal["finished", "interrupted"] = "finished",
    ) -> None:
        """Say how a scan ended. `totals` is kept as it is, for lists of scans."""
        number = self._scan_no(scan_id)
        with self._transaction() as connection:
            connection.execute(
                "UPDATE scans SET state = ?, totals = ?, duration_s = ? WHERE scan_no = ?",
                (state, dump_json(dict(totals)), duration_s, number),
            )

    # --- files --------------------------------------------------------------------------------

    def reuse(self, scan_id: str, files: Sequence[DumpFile], signature: str) -> list[bool]:
        """Link the files whose record is there already; say of each whether it was.

        A record is used again only if root, path, name, place, size, both times, inode and
        `signature` are the same and the file could be opened and read then.
        """
        number = self._scan_no(scan_id)
        identities = self._identities(number, files, signature)
        known: dict[bytes, int] = {}
        links: list[tuple[int, int]] = []
        with self._transaction() as connection:
            for start in range(0, len(identities), _BATCH_LOOKUP):
                some = identities[start : start + _BATCH_LOOKUP]
                marks = ",".join("?" * len(some))
                known.update(
                    connection.execute(
                        f"SELECT identity, file_id FROM files WHERE identity IN ({marks})", some
                    )
                )
            if known:
                links = [(number, known[i]) for i in identities if i in known]
                connection.executemany("INSERT OR IGNORE INTO scan_files VALUES(?,?)", links)
        return [identity in known for identity in identities]

    def add(self, scan_id: str, results: Sequence[FileResult], signature: str) -> None:
        """Store what files gave, and link them to the scan."""
        number = self._scan_no(scan_id)
        with told(self.path):
            root = self._root(number)
        with self._transaction() as connection:
            self._forget_if_changed(connection)
            try:
                batch = _Batch(self, connection, number, root, signature)
                for result in results:
                    batch.take(result)
                batch.insert()
            except BaseException:
                # What was numbered for this batch will not be in the file.
                self._forget()
                raise

    def add_failures(self, scan_id: str, failures: Iterable[ReadFailure]) -> None:
        """Store failures that belong to the scan itself: what the walk could not reach."""
        number = self._scan_no(scan_id)
        with self._transaction() as connection:
            _insert(
                connection,
                "INSERT INTO failures(file_id, scan_no, file, reader, error, byte_offset, message)"
                " VALUES(NULL,?,?,?,?,?,?)",
                [
                    (number, f.file, f.reader, f.error, f.offset, f.message)
                    for f in failures
                ],
            )

    # --- numbers given out --------------------------------------------------------------------

    def _root(self, number: int) -> Any:
        return self._connection.execute(
            "SELECT root FROM scans WHERE scan_no = ?", (number,)
        ).fetchone()[0]

    def _identities(
        self, number: int, files: Sequence[DumpFile], signature: str
    ) -> list[bytes]:
        with told(self.path):
            root = self._root(number)
        last: Place | None = None
        identities = []
        for file in files:
            if file.place is not last:
                last = file.place
                base = _identity_base(root, signature, last)
            identities.append(file_identity(base, file))
        return identities

    def _forget_if_changed(self, connection: sqlite3.Connection) -> None:
        """Forget the numbers of shared rows once another process wrote: it may have removed some."""
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._seen_version:
            self._forget()
            self._seen_version = version

    def _forget(self) -> None:
        self._kinds.clear()
        self._place_ids.clear()
        self._origins.clear()

    def _place_id(self, connection: sqlite3.Connection, place: Place) -> int:
        number = self._place_ids.get(place)
        if number is None:
            if len(self._place_ids) >= _KINDS_KEPT:
                self._place_ids.clear()
            head = (place.source, place.run, place.host, place.step, place.device)
            number = connection.execute(
                "INSERT INTO places(source, run, host, step, device, content)"
                " VALUES(?,?,?,?,?,?)",
                (*map(bindable, head), dump_json(asdict(place))),
            ).lastrowid
            assert number is not None
            self._place_ids[place] = number
        return number

    def _origin_id(self, connection: sqlite3.Connection, root: Any, signature: str) -> int:
        number = self._origins.get((root, signature))
        if number is None:
            values = (root, bindable(signature))
            row = connection.execute(
                "SELECT origin_id FROM origins WHERE root = ? AND signature = ?", values
            ).fetchone()
            number = (
                row[0]
                if row
                else connection.execute(
                    "INSERT INTO origins(root, signature) VALUES(?,?)", values
                ).lastrowid
            )
            assert number is not None
            self._origins[(root, signature)] = number
        return number


class _Batch:
    """The rows of one call of `add`."""

    def __init__(
        self,
        store: StoreWriting,
        connection: sqlite3.Connection,
        scan_no: int,
        root: Any,
        signature: str,
    ) -> None:
        # Imported here because numpy comes with it, which listing scans does not need.
        from dumpscope.dtypes import dtype_named

        self._store = store
        self._connection = connection
        self._scan_no = scan_no
        self._root = root
        self._signature = signature
        self._dtype_named = dtype_named
        self._saturates: dict[str, bool] = {}
        self._origin_id = store._origin_id(connection, root, signature)
        self._place: Place | None = None
        self._place_id = 0
        self._base: Any = None
        self._next_file = _next_number(connection, "files", "file_id")
        self._next_op = _next_number(connection, "ops", "op_id")
        self._next_kind = _next_number(connection, "kinds", "kind_id")
        self._files: list[tuple[Any, ...]] = []
        self._links: list[tuple[int, int]] = []
        self._ops: list[tuple[Any, ...]] = []
        self._kinds: list[tuple[int, bytes]] = []
        self._overflow: list[tuple[Any, ...]] = []
        self._graph: list[tuple[Any, ...]] = []
        self._failures: list[tuple[Any, ...]] = []

    def take(self, result: FileResult) -> None:
        """Make the rows of one file."""
        file = result.file
        if file.place is not self._place:
            self._place = file.place
            self._place_id = self._store._place_id(self._connection, file.place)
            self._base = _identity_base(self._root, self._signature, file.place)
        file_id = self._next_file
        self._next_file += 1
        first_op = self._next_op
        tensors = unchecked = 0
        for op in result.ops:
            bad = self._take_op(op, file_id, file.relative, result.reader)
            tensors += len(op.tensors)
            unchecked += bad
        for record in result.overflow:
            self._take_overflow(record, file_id, file.relative)
        for node in result.graph:
            self._take_node(node, file_id, file.relative)
        for failure in result.failures:
            self._failures.append(
                (file_id, failure.file, failure.reader, failure.error, failure.offset,
                 failure.message)
            )  # fmt: skip
        readable = not any(_is_os_error(failure.error) for failure in result.failures)
        self._files.append(
            (
                file_id,
                file_identity(self._base, file) if readable else None,
                self._origin_id,
                self._place_id,
                file.relative,
                None if file.relative.endswith(file.name) and _tail(file) else file.name,
                file.size,
                file.mtime_ns,
                file.ctime_ns,
                file.inode,
                result.reader,
                result.known,
                result.auxiliary,
                result.bytes_read,
                first_op,
                self._next_op - first_op,
                tensors,
                unchecked,
                bool(result.overflow or result.graph or result.failures),
                dump_json(result.notes) if result.notes else None,
            )
        )
        self._links.append((self._scan_no, file_id))

    def _take_op(self, op: OpRecord, file_id: int, relative: str, reader: str) -> int:
        notable = False
        unchecked = 0
        parts = []
        kinds = self._store._kinds
        for tensor in op.tensors:
            kind = kind_of(tensor)
            number = kinds.get(kind)
            if number is None:
                number = self._add_kind(kind)
            parts.append(encode_tensor(tensor, number))
            stats = tensor.stats
            if stats.nan or stats.posinf or stats.neginf or stats.saturated:
                notable = notable or self._is_notable(tensor)
            if tensor.unchecked is not None or (tensor.dumped and not tensor.checked):
                unchecked += 1
        place_id = self._place_id
        if op.place is not self._place and op.place != self._place:
            place_id = self._store._place_id(self._connection, op.place)
        rest: bytes | None = None
        values = _op_rest(op)
        if values != _USUAL_REST or op.reader != reader or op.file != relative:
            rest = dump_json(
                (
                    *values,
                    None if op.reader == reader else op.reader,
                    None if op.file == relative else op.file,
                )
            )
        self._ops.append(
            (self._next_op, file_id, place_id, notable, op.partial, len(parts), unchecked)
            + _op_start(op)
            + (rest, b"".join(parts))
        )
        self._next_op += 1
        return unchecked

    def _add_kind(self, kind: Kind) -> int:
        kinds = self._store._kinds
        if len(kinds) >= _KINDS_KEPT:
            kinds.clear()
        number = kinds[kind] = self._next_kind
        self._next_kind += 1
        self._kinds.append((number, kind_content(kind)))
        return number

    def _is_notable(self, tensor: TensorSummary) -> bool:
        if tensor.stats.nonfinite:
            return True
        saturates = self._saturates.get(tensor.dtype)
        if saturates is None:
            saturates = self._dtype_named(tensor.dtype).saturates
            self._saturates[tensor.dtype] = saturates
        return saturates

    def _take_overflow(self, record: OverflowRecord, file_id: int, relative: str) -> None:
        place_id = self._place_id
        if record.place != self._place:
            place_id = self._store._place_id(self._connection, record.place)
        units = [
            (u.kind, u.status, u.model_id, u.stream_id, u.task_id, u.context_id, u.thread_id,
             u.fields)
            for u in record.units
        ]  # fmt: skip
        self._overflow.append(
            (file_id, place_id, record.empty, record.known_kind, record.timestamp,
             record.start_ns, None if record.file == relative else record.file, dump_json(units))
        )  # fmt: skip

    def _take_node(self, node: GraphNode, file_id: int, relative: str) -> None:
        self._graph.append(
            (file_id, node.name, node.op_type, node.order,
             None if node.file == relative else node.file,
             dump_json((node.inputs, node.original_names)))
        )  # fmt: skip

    def insert(self) -> None:
        """Write the rows."""
        connection = self._connection
        _insert(connection, "INSERT INTO kinds VALUES(?,?)", self._kinds)
        _insert(connection, _OP, self._ops)
        _insert(
            connection,
            "INSERT INTO files VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            self._files,
        )
        _insert(connection, "INSERT INTO scan_files VALUES(?,?)", self._links)
        _insert(
            connection,
            "INSERT INTO overflow(file_id, place_id, empty, known_kind, timestamp, start_ns,"
            " file, units) VALUES(?,?,?,?,?,?,?,?)",
            self._overflow,
        )
        _insert(
            connection,
            "INSERT INTO graph(file_id, name, op_type, order_no, file, links)"
            " VALUES(?,?,?,?,?,?)",
            self._graph,
        )
        _insert(
            connection,
            "INSERT INTO failures(file_id, file, reader, error, byte_offset, message)"
            " VALUES(?,?,?,?,?,?)",
            self._failures,
        )


def _insert(connection: sqlite3.Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
    """Insert rows; only when one holds what SQLite cannot, all values are looked at."""
    if not rows:
        return
    connection.execute("SAVEPOINT rows")
    try:
        connection.executemany(statement, rows)
    except (OverflowError, UnicodeEncodeError):
        connection.execute("ROLLBACK TO rows")
        connection.executemany(statement, [tuple(map(bindable, row)) for row in rows])
    connection.execute("RELEASE rows")


def _next_number(connection: sqlite3.Connection, table: str, column: str) -> int:
    return int(connection.execute(f"SELECT ifnull(max({column}), 0) + 1 FROM {table}").fetchone()[0])


def _identity_base(root: Any, signature: str, place: Place) -> Any:
    return hashlib.blake2b(
        repr((root, signature, place)).encode("utf-8", "surrogatepass"), digest_size=16
    )


def file_identity(base: Any, file: DumpFile) -> bytes:
    """Hash all that must be the same for a file's record to be used again (16 bytes)."""
    hashed = base.copy()
    hashed.update(
        f"{file.relative!r}{file.name!r}{file.size},{file.mtime_ns},{file.ctime_ns},{file.inode}"
        .encode("utf-8", "surrogatepass")
    )  # fmt: skip
    return bytes(hashed.digest())


def _tail(file: DumpFile) -> bool:
    return file.relative.rpartition("/")[2] == file.name


def _is_os_error(name: str) -> bool:
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, OSError)
