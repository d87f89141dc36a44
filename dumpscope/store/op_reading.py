"""Taking operators out of the store.

They are streamed in an order that does not depend on how they were put in: input path, run,
step, device, start, task, the writer's order, file, place within the file. What is not known
comes before what is.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from dumpscope.model import OpRecord, TensorSummary
from dumpscope.store.encoding import (
    SqlValue,
    bindable,
    whole_number,
    whole_text,
)
from dumpscope.store.memory import StoreMemory
from dumpscope.store.querying import OP_COLUMNS, KindReader, make_op, select_ops
from dumpscope.store.selection import Selection
from dumpscope.store.shared_rows import is_unchecked

__all__ = ["StoreOps"]

_ORDER = (
    " ORDER BY p.source, p.run, o.step, o.device, o.start_ns, o.task_id, o.order_no, f.relative,"
    " o.op_id"
)
# The order of assembly.part_key, then that of the parts of one execution.
_PART_ORDER = (
    " ORDER BY p.source, p.run, o.step, o.device, p.model_name, p.model_id, o.op_type,"
    " replace(replace(replace(replace(o.op_name, '.', '_'), '/', '_'), '\\', '_'), ' ', '_'),"
    " o.task_id, o.stream_id, o.context_id, o.thread_id, o.form, o.start_ns, o.order_no,"
    " f.relative, o.op_id"
)
_WHOLE = f"{OP_COLUMNS}, o.tensors"


class StoreOps(StoreMemory):
    """The part of `Store` that yields operators."""

    _questions = itertools.count()

    def notable_ops(
        self, scan_id: str, selection: Selection | None = None, *, ordered: bool = True
    ) -> Iterator[OpRecord]:
        """Yield the operators of which some tensor has a non-finite or a saturated value.

        Saturated values count in the dtypes in which they are a finding. Unordered they come as
        they were put in, which is faster.
        """
        order = _ORDER if ordered else ""
        return self._ops(scan_id, select_ops(_WHOLE, "notable"), selection, order=order)

    def partial_ops(self, scan_id: str, selection: Selection | None = None) -> Iterator[OpRecord]:
        """Yield the parts of executions that several files share, without their tensors."""
        return self._ops(scan_id, select_ops(OP_COLUMNS, "partial"), selection)

    def parts(self, scan_id: str) -> Iterator[OpRecord]:
        """Yield the parts with their tensors, those of one execution next to each other."""
        return self._ops(scan_id, select_ops(_WHOLE, "partial"), None, order=_PART_ORDER)

    def count_partial(self, scan_id: str) -> int:
        """How many records are parts of executions that several files share."""
        return self._count(scan_id, select_ops("count(*)", "partial"))

    def has_other_forms(self, scan_id: str) -> bool:
        """Whether something is there that is converted or statistics only."""
        return bool(self._count(scan_id, f"SELECT EXISTS({select_ops('1', 'form')})"))

    def ops(
        self,
        scan_id: str,
        op_ids: Iterable[int] | None = None,
        names: Iterable[str] | None = None,
        selection: Selection | None = None,
        *,
        op_types: Iterable[str] | None = None,
        light: bool = False,
    ) -> Iterator[OpRecord]:
        """Yield the operators of a scan: all, or those of some numbers, names or types.

        `light` leaves the tensors out.
        """
        columns = OP_COLUMNS if light else _WHOLE
        wanted: list[tuple[str, Iterable[SqlValue]]] = []
        statement = select_ops(columns)
        if op_ids is not None:
            statement = select_ops(columns, "op_id")
            wanted.append(("o.op_id", set(op_ids)))
        if names is not None:
            wanted.append(("o.op_name", set(map(bindable, names))))
        if op_types is not None:
            wanted.append(("o.op_type", set(map(bindable, op_types))))
        return self._ops(scan_id, statement, selection, wanted=wanted)

    def ops_by_task(
        self,
        scan_id: str,
        tasks: Iterable[tuple[int | None, int | None]],
        selection: Selection | None = None,
        *,
        light: bool = False,
    ) -> Iterator[OpRecord]:
        """Yield the operators with one of these (task id, stream id); a stream of `None` is any."""
        pairs = {(task, stream) for task, stream in tasks if task is not None}
        statement = select_ops(OP_COLUMNS if light else _WHOLE)
        numbers = {bindable(task) for task, _ in pairs}
        for op in self._ops(scan_id, statement, selection, wanted=[("o.task_id", numbers)]):
            if (op.task_id, None) in pairs or (op.task_id, op.stream_id) in pairs:
                yield op

    def unchecked_tensors(
        self, scan_id: str, selection: Selection | None = None
    ) -> Iterator[tuple[OpRecord, TensorSummary]]:
        """Yield the tensors whose values could not be read, each with its operator."""
        for op in self._ops(scan_id, select_ops(_WHOLE, "unchecked_count"), selection):
            for tensor in op.tensors:
                if is_unchecked(tensor):
                    yield op, tensor

    def op_names(self, scan_id: str) -> list[str]:
        """All names of operators in a scan, sorted."""
        number = self._scan_no(scan_id)
        with self._read() as connection:
            rows = connection.execute(select_ops("DISTINCT o.op_name"), {"scan": number})
            return sorted(whole_text(row[0]) for row in rows)

    def op_types(self, scan_id: str) -> list[str]:
        """All types of operators in a scan, sorted."""
        number = self._scan_no(scan_id)
        with self._read() as connection:
            rows = connection.execute(select_ops("DISTINCT o.op_type"), {"scan": number})
            return sorted(whole_text(row[0]) for row in rows)

    def steps(self, scan_id: str) -> frozenset[int]:
        """The steps of which some operator is there."""
        number = self._scan_no(scan_id)
        with self._read() as connection:
            rows = connection.execute(select_ops("DISTINCT o.step"), {"scan": number})
            return frozenset(whole_number(row[0]) for row in rows if row[0] is not None)

    def _ops(
        self,
        scan_id: str,
        statement: str,
        selection: Selection | None,
        *,
        wanted: Sequence[tuple[str, Iterable[SqlValue]]] = (),
        order: str = _ORDER,
    ) -> Iterator[OpRecord]:
        number = self._scan_no(scan_id)
        places = self._places()
        kind_at = KindReader(self._connection)
        conditions = self._op_conditions(number, selection)
        with self._read() as connection, ExitStack() as kept:
            for column, values in wanted:
                question = kept.enter_context(self._kept(values))
                conditions.text += (
                    f" AND {column} IN (SELECT value FROM temp.wanted WHERE question = {question})"
                )
            rows = connection.execute(statement + conditions.text + order, conditions.parameters)
            kept.callback(_quietly, rows.close)
            for row in rows:
                yield make_op(row, places, kind_at)

    @contextmanager
    def _kept(self, values: Iterable[SqlValue]) -> Iterator[int]:
        """Put values where a question can use them, for as long as it lasts. Yields its number."""
        connection = self._connection
        question = next(self._questions)
        connection.execute(
            "CREATE TEMP TABLE IF NOT EXISTS wanted"
            "(question, value, PRIMARY KEY(question, value)) WITHOUT ROWID"
        )
        try:
            connection.execute("SAVEPOINT wanted")
            connection.executemany(
                "INSERT INTO temp.wanted VALUES(?,?)", ((question, value) for value in values)
            )
            connection.execute("RELEASE wanted")
            yield question
        finally:
            _quietly(connection.execute, "DELETE FROM temp.wanted WHERE question = ?", (question,))


def _quietly(call: Callable[..., object], *arguments: object) -> None:
    """Tidy up. Whoever leaves a question in the middle may have closed the store before."""
    with suppress(sqlite3.ProgrammingError):
        call(*arguments)
