"""Rows that many others refer to: places, origins, kinds of tensors.

Each writer remembers the numbers of those it wrote itself and never looks for those of others,
so the same content may have several numbers.
"""

from __future__ import annotations

import sqlite3
from dataclasses import asdict

from dumpscope.model import Place, TensorSummary
from dumpscope.store.encoding import Kind, SqlValue, bindable, dump_json

__all__ = ["SharedRows", "is_unchecked"]

_MOST_KEPT = 1 << 13

KnownKind = tuple[int, bool, bool]
"""Number of a kind, whether such tensors are notable, and whether they are unchecked."""


class SharedRows:
    """The numbers of shared rows that this connection wrote.

    All methods are called inside a transaction. Kinds are handed out at once and written with
    `insert_kinds`.

    Attributes
    ----------
    generation
        How often all was forgotten: what has a number keeps it while this stays the same.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = -1
        self.generation = 0
        self._places: dict[Place, int] = {}
        self._origins: dict[tuple[SqlValue, str], int] = {}
        self._next_kind = 0
        self._new_kinds: list[tuple[int, bytes]] = []
        self._saturates: dict[str, bool] = {}
        self.kinds: dict[Kind, KnownKind] = {}

    def forget(self) -> None:
        """Remember nothing: the rows may be gone."""
        self.kinds.clear()
        self._new_kinds.clear()
        self._places.clear()
        self._origins.clear()
        self._version = -1
        self.generation += 1

    def refresh(self) -> None:
        """Begin a transaction: forget all if another connection wrote, it may have removed rows."""
        version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.forget()
            self._version = version
            self._next_kind = self._connection.execute(
                "SELECT ifnull(max(kind_id), 0) + 1 FROM kinds"
            ).fetchone()[0]

    def add_kind(self, kind: Kind, tensor: TensorSummary) -> KnownKind:
        """Number the kind of a tensor, which is not in `kinds`."""
        if len(self.kinds) >= _MOST_KEPT:
            self.kinds.clear()
        number = self._next_kind
        self._next_kind += 1
        self._new_kinds.append((number, dump_json(kind)))
        known = (number, self._is_notable(tensor), is_unchecked(tensor))
        # What is wrong with a tensor hardly ever comes twice.
        if not known[1]:
            self.kinds[kind] = known
        return known

    def _is_notable(self, tensor: TensorSummary) -> bool:
        if tensor.stats.nonfinite:
            return True
        if not tensor.stats.saturated:
            return False
        saturates = self._saturates.get(tensor.dtype)
        if saturates is None:
            # Imported here because numpy comes with it, which lists of scans do not need.
            from dumpscope.dtypes import dtype_named

            saturates = self._saturates[tensor.dtype] = dtype_named(tensor.dtype).saturates
        return saturates

    def insert_kinds(self) -> None:
        """Write the kinds that were numbered."""
        if self._new_kinds:
            self._connection.executemany("INSERT INTO kinds VALUES(?,?)", self._new_kinds)
            self._new_kinds.clear()

    def place_id(self, place: Place) -> int:
        """The number of a place."""
        number = self._places.get(place)
        if number is None:
            if len(self._places) >= _MOST_KEPT:
                self._places.clear()
            head = (
                place.source, place.run, place.host, place.step, place.device, place.model_name,
                place.model_id,
            )  # fmt: skip
            number = self._insert(
                "INSERT INTO places(source, run, host, step, device, model_name, model_id, content)"
                " VALUES(?,?,?,?,?,?,?,?)",
                (*map(bindable, head), dump_json(asdict(place))),
            )
            self._places[place] = number
        return number

    def origin_id(self, root: SqlValue, signature: str) -> int:
        """The number of a root together with a signature."""
        number = self._origins.get((root, signature))
        if number is None:
            number = self._origins[(root, signature)] = self._insert(
                "INSERT INTO origins(root, signature) VALUES(?,?)", (root, bindable(signature))
            )
        return number

    def _insert(self, statement: str, row: tuple[SqlValue, ...]) -> int:
        number = self._connection.execute(statement, row).lastrowid
        assert number is not None
        return number


def is_unchecked(tensor: TensorSummary) -> bool:
    """Whether a tensor's values should have been checked and were not."""
    return tensor.unchecked is not None or (tensor.dumped and not tensor.checked)
