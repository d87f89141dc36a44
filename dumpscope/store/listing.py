"""The scans of a store: which there are, and removing them."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from typing import Any, Literal

from dumpscope.errors import StoreError
from dumpscope.model import ScanOptions
from dumpscope.records import record
from dumpscope.store.connection import StoreConnection
from dumpscope.store.encoding import bindable, load_json, tensor_kinds, whole_text
from dumpscope.store.opening import told

__all__ = ["ScanInfo", "ScanState", "StoreListing"]

ScanState = Literal["running", "interrupted", "finished"]

_COLUMNS = (
    "SELECT scan_id, root, sources, options, config, tool_version, state, started_at, duration_s,"
    " totals, (SELECT count(*) FROM scan_files f WHERE f.scan_no = s.scan_no) FROM scans s"
)


@record(frozen=True, slots=True)
class ScanInfo:
    """What a scan was asked for and how it ended, without its records.

    `state` is "running" also for a scan that was killed. `files` counts the linked file records;
    `totals` is what `finish` was given.
    """

    scan_id: str
    root: str
    sources: tuple[str, ...]
    options: ScanOptions
    config: Mapping[str, object] | None
    tool_version: str
    state: ScanState
    started_at: str
    duration_s: float | None
    totals: Mapping[str, Any]
    files: int


class StoreListing(StoreConnection):
    """The part of `Store` that deals with whole scans."""

    def scans(self) -> list[ScanInfo]:
        """All scans, newest first."""
        with told(self.path):
            rows = self._connection.execute(f"{_COLUMNS} ORDER BY scan_no DESC").fetchall()
        return [_info(row) for row in rows]

    def scan_info(self, scan_id: str) -> ScanInfo:
        """One scan. Raises `StoreError` when it is not there."""
        number = self._scan_no(scan_id)
        with told(self.path):
            row = self._connection.execute(f"{_COLUMNS} WHERE scan_no = ?", (number,)).fetchone()
        return _info(row)

    def find_scan(self, text: str) -> str:
        """Complete the beginning of a scan id, or "latest".

        Raises `StoreError` when no scan or more than one begins like that.
        """
        if text == "latest":
            info = self.latest()
            if info is None:
                raise StoreError(
                    f"{self.path}: there is no scan yet; `dumpscope scan PATH` makes one"
                )
            return info.scan_id
        with told(self.path):
            ids = [row[0] for row in self._connection.execute("SELECT scan_id FROM scans")]
        if text in ids:
            return text
        found = [scan_id for scan_id in ids if text and scan_id.startswith(text)]
        if len(found) == 1:
            return str(found[0])
        if found:
            raise StoreError(
                f"{self.path}: {len(found)} scans begin with {text!r}; give more of the id"
            )
        raise StoreError(
            f"{self.path}: there is no scan {text!r}; `dumpscope scans list` shows them"
        )

    def latest(self) -> ScanInfo | None:
        """The scan that was begun last, `None` in an empty store."""
        with told(self.path):
            row = self._connection.execute(f"{_COLUMNS} ORDER BY scan_no DESC LIMIT 1").fetchone()
        return None if row is None else _info(row)

    def find_unfinished(self, root: str) -> ScanInfo | None:
        """The newest scan of `root`, if it did not finish."""
        with told(self.path):
            row = self._connection.execute(
                f"{_COLUMNS} WHERE root = ? ORDER BY scan_no DESC LIMIT 1", (bindable(root),)
            ).fetchone()
        if row is None:
            return None
        info = _info(row)
        return None if info.state == "finished" else info

    def was_hurt(self, root: str) -> bool:
        """Whether the newest scan of `root` was killed, or a file ended a process that read it."""
        with told(self.path):
            row = self._connection.execute(
                "SELECT scan_no, state FROM scans WHERE root = ? ORDER BY scan_no DESC LIMIT 1",
                (bindable(root),),
            ).fetchone()
            if row is None:
                return False
            number, state = row
            return state == "running" or bool(
                self._connection.execute(
                    # In this order: failures are few.
                    "SELECT EXISTS(SELECT 1 FROM failures e CROSS JOIN scan_files f"
                    " ON f.scan_no = ? AND f.file_id = e.file_id WHERE e.error = ?)",
                    (number, ChildProcessError.__name__),
                ).fetchone()[0]
            )

    def remove(self, scan_id: str) -> None:
        """Remove a scan, and the file records that no other scan uses."""
        self._remove([self._scan_no(scan_id)])

    def prune(self, keep: int) -> list[str]:
        """Remove all but the newest `keep` scans. Returns the ids of the removed ones."""
        with told(self.path):
            rows = self._connection.execute(
                "SELECT scan_no, scan_id FROM scans ORDER BY scan_no DESC LIMIT -1 OFFSET ?",
                (max(keep, 0),),
            ).fetchall()
        if rows:
            self._remove([row[0] for row in rows])
        return [row[1] for row in rows]

    def _remove(self, numbers: list[int]) -> None:
        with self._transaction() as connection:
            for number in numbers:
                for table in ("scan_files", "failures", "scans"):
                    connection.execute(
                        f"DELETE FROM {table} WHERE scan_no = ?",
                        (number,),
                    )
            connection.execute(
                "CREATE TEMP TABLE gone(file_id INTEGER PRIMARY KEY, first_op, op_count, has_more)"
            )
            connection.execute(
                "INSERT INTO gone SELECT file_id, first_op, op_count, has_more FROM files"
                " WHERE file_id NOT IN (SELECT file_id FROM scan_files)"
            )
            connection.execute(
                "DELETE FROM batches WHERE digest IN (SELECT digest FROM batches WHERE EXISTS"
                " (SELECT 1 FROM gone WHERE file_id BETWEEN first_file AND last_file))"
            )
            for first, count in connection.execute(
                "SELECT first_op, op_count FROM gone WHERE op_count"
            ):
                connection.execute(
                    "DELETE FROM ops WHERE op_id >= ? AND op_id < ?", (first, first + count)
                )
            for table in ("overflow", "graph", "failures"):
                connection.execute(
                    f"DELETE FROM {table} WHERE file_id IN"
                    " (SELECT file_id FROM gone WHERE has_more)"
                )
            connection.execute(
                "DELETE FROM identities WHERE identity IN"
                " (SELECT identity FROM files WHERE file_id IN (SELECT file_id FROM gone))"
            )
            connection.execute("DELETE FROM files WHERE file_id IN (SELECT file_id FROM gone)")
            # The numbers of the last files may be given out again.
            connection.execute(
                "UPDATE identified SET file_id ="
                " min(file_id, (SELECT ifnull(max(file_id), 0) FROM files))"
            )
            connection.execute("DROP TABLE gone")
            connection.execute(
                "DELETE FROM places WHERE place_id NOT IN (SELECT place_id FROM files"
                " UNION SELECT place_id FROM ops UNION SELECT place_id FROM overflow)"
            )
            connection.execute(
                "DELETE FROM origins WHERE origin_id NOT IN (SELECT origin_id FROM files)"
            )
            used: set[int] = set()
            for (blob,) in connection.execute("SELECT tensors FROM ops"):
                used.update(tensor_kinds(blob))
            unused = [
                row for row in connection.execute("SELECT kind_id FROM kinds") if row[0] not in used
            ]
            connection.executemany("DELETE FROM kinds WHERE kind_id = ?", unused)
            self._shared.forget()

    def compact(self) -> None:
        """Give the room of what was removed back to the file system.

        It needs as much room as the store for a while, and nobody else may be using the store.
        """
        with told(self.path):
            self._connection.execute("VACUUM")


def _info(row: tuple[Any, ...]) -> ScanInfo:
    try:
        return ScanInfo(
            scan_id=row[0],
            root=whole_text(row[1]),
            sources=tuple(load_json(row[2])),
            options=_options(load_json(row[3])),
            config=None if row[4] is None else load_json(row[4]),
            tool_version=row[5],
            state=row[6],
            started_at=row[7],
            duration_s=row[8],
            totals={} if row[9] is None else load_json(row[9]),
            files=row[10],
        )
    except (ValueError, TypeError, AttributeError, struct.error) as error:
        raise StoreError(
            f"scan {row[0]!r} of the store is damaged ({error}); remove it with "
            "`dumpscope scans rm`"
        ) from error


def _options(values: dict[str, Any]) -> ScanOptions:
    """Rebuild the options. What another version of the program added is left out."""
    known = {field.name for field in dataclasses.fields(ScanOptions)}
    kept: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if name in known
    }
    return ScanOptions(**kept)
