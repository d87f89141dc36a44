"""Rows of the store that are no operators, made records again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dumpscope.model import GraphNode, OverflowRecord, OverflowUnit, Place, ReadFailure
from dumpscope.store.encoding import load_json, whole_number, whole_text

__all__ = ["make_failure", "make_node", "make_overflow"]


def make_overflow(
    row: tuple[Any, ...], relative: str | bytes, places: Mapping[int, Place]
) -> OverflowRecord:
    """Make a record of the hardware.

    `row` is (record_id, place_id, known_kind, timestamp, start_ns, file, units); `relative` is the
    path of the file in which it stood.
    """
    record_id, place_id, known_kind, timestamp, start_ns, file, units = row
    return OverflowRecord(
        tuple(
            OverflowUnit(
                kind, tuple(status), model_id, stream_id, task_id, context_id, thread_id,
                tuple((name, value) for name, value in fields),
            )
            for kind, status, model_id, stream_id, task_id, context_id, thread_id, fields
            in load_json(units)
        ),
        whole_text(relative if file is None else file),
        whole_number(timestamp),
        whole_number(start_ns),
        bool(known_kind),
        places[place_id],
        record_id,
    )  # fmt: skip


def make_node(row: tuple[Any, ...], relative: str | bytes) -> GraphNode:
    """Make an operator of a graph text out of (name, op_type, order_no, file, links)."""
    name, op_type, order, file, links = row
    inputs, original_names = load_json(links)
    return GraphNode(
        whole_text(name),
        whole_text(op_type),
        tuple((producer, index) for producer, index in inputs),
        tuple(original_names),
        whole_number(order),
        whole_text(relative if file is None else file),
    )


def make_failure(row: tuple[Any, ...]) -> ReadFailure:
    """Make a read failure out of (file, reader, error, byte_offset, message)."""
    file, reader, error, offset, message = row
    return ReadFailure(
        whole_text(file), whole_text(reader), whole_text(error), whole_number(offset),
        whole_text(message),
    )  # fmt: skip
