"""The first schema.

Columns have no type affinity, so values come back as they went in. Text that UTF-8 cannot hold
and integers of more than 64 bits are kept as BLOBs (`dumpscope.store.encoding`).

- A file record is immutable. `identity` is a hash of all that must be the same for a later
  scan to use it again, `NULL` when nothing may. Its operators have the consecutive numbers
  `first_op` … `first_op + op_count - 1`, which makes an index on them unnecessary.
- `identities` finds files by identity. Hashes come in no order, and putting each in its place at
  once would touch a page for every file; so it is filled, sorted, when a later scan asks for the
  first time, with the files behind the number in `identified`.
- `kinds` holds what many tensors have in common (dtype, shape, …); `ops.tensors` refers to it.
"""

from __future__ import annotations

import sqlite3

__all__ = ["apply"]

STATEMENTS = (
    """CREATE TABLE scans(
        scan_no INTEGER PRIMARY KEY AUTOINCREMENT, scan_id TEXT NOT NULL UNIQUE, root, sources,
        options, config, tool_version, state TEXT NOT NULL, started_at TEXT NOT NULL,
        duration_s, totals)""",
    "CREATE TABLE origins(origin_id INTEGER PRIMARY KEY, root, signature)",
    """CREATE TABLE places(
        place_id INTEGER PRIMARY KEY, source, run, host, step, device, model_name, model_id,
        content)""",
    """CREATE TABLE files(
        file_id INTEGER PRIMARY KEY, identity, origin_id, place_id, relative, size, reader,
        known, auxiliary, bytes_read, first_op, op_count, tensor_count, unchecked_count,
        has_more, notes)""",
    "CREATE TABLE identities(identity PRIMARY KEY, file_id) WITHOUT ROWID",
    "CREATE TABLE identified(file_id INTEGER NOT NULL)",
    "INSERT INTO identified VALUES(0)",
    """CREATE TABLE scan_files(
        scan_no INTEGER NOT NULL, file_id INTEGER NOT NULL,
        PRIMARY KEY(scan_no, file_id)) WITHOUT ROWID""",
    "CREATE TABLE kinds(kind_id INTEGER PRIMARY KEY, content)",
    """CREATE TABLE ops(
        op_id INTEGER PRIMARY KEY, file_id, place_id, notable, partial, form, tensor_count,
        unchecked_count, step, device, start_ns, task_id, stream_id, context_id, thread_id,
        order_no, timestamp, op_type, op_name, rest, tensors)""",
    "CREATE INDEX ops_notable ON ops(file_id) WHERE notable",
    "CREATE INDEX ops_unchecked ON ops(file_id) WHERE unchecked_count",
    "CREATE INDEX ops_other_form ON ops(file_id) WHERE form",
    "CREATE INDEX ops_partial ON ops(file_id) WHERE partial",
    """CREATE TABLE overflow(
        record_id INTEGER PRIMARY KEY, file_id, place_id, empty, known_kind, timestamp,
        start_ns, file, units)""",
    "CREATE INDEX overflow_by_file ON overflow(file_id)",
    """CREATE TABLE graph(
        node_id INTEGER PRIMARY KEY, file_id, name, op_type, order_no, file, links)""",
    "CREATE INDEX graph_by_file ON graph(file_id)",
    """CREATE TABLE failures(
        failure_id INTEGER PRIMARY KEY, file_id, scan_no, file, reader, error, byte_offset,
        message)""",
    "CREATE INDEX failures_by_file ON failures(file_id) WHERE file_id IS NOT NULL",
    "CREATE INDEX failures_by_scan ON failures(scan_no) WHERE scan_no IS NOT NULL",
)


def apply(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty file."""
    for statement in STATEMENTS:
        connection.execute(statement)
