"""What a scan could not read, and which executions it may have been the fault of.

A bad input without a producer is older than the dump only where nothing of the dump is missing
before it. A file that gave no operator is placed by its name, as far as that says anything.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

from dumpscope.causality.dataflow import Lane, lane_of, sequence_key
from dumpscope.model import DumpName, OpRecord, Place, TensorSummary
from dumpscope.naming import parse_name, timestamp_ns
from dumpscope.records import record

__all__ = ["Lost", "Losses", "lost_call"]

_Moment = tuple[int, int]
"""Start and task id of an execution; what has no time is as early as can be."""


@record(frozen=True, slots=True)
class Lost:
    """What could not be read before an execution: how much, and the name of the last of it."""

    count: int
    name: str


class Losses:
    """What could not be read of each step of each rank.

    Parameters
    ----------
    files
        Those with read failures: path, place, and how many operators they gave.
    unchecked
        Tensors whose values could not be read, each with its operator.
    """

    def __init__(
        self,
        files: Iterable[tuple[str, Place, int]] = (),
        unchecked: Iterable[tuple[OpRecord, TensorSummary]] = (),
    ) -> None:
        gone: dict[tuple[Lane, int | None], dict[str, _Moment]] = defaultdict(dict)
        blank: dict[tuple[Lane, int | None], dict[str, _Moment]] = defaultdict(dict)
        self._names: dict[str, str] = {}
        for file, place, ops in files:
            if ops:
                # What is left of it was judged; its outputs may be among the unchecked ones.
                continue
            name = parse_name(os.path.basename(file))
            call = lost_call(file, place, name, -1)
            gone[lane_of(call), call.step][file] = _moment(call)
            self._names[file] = os.path.basename(file) if name is None else _name_of(call)
        for op, tensor in unchecked:
            if tensor.role == "output":
                blank[lane_of(op), op.step][op.file] = _moment(op)
                self._names[op.file] = _name_of(op)
        self._gone = _in_order(gone)
        self._blank = _in_order(blank)

    def before(self, op: OpRecord, *, addressed: bool) -> Lost | None:
        """What may have made what `op` read, as far as time tells.

        `addressed` says that it is known to be no output of an operator that could be read.
        """
        if not self._names:
            return None
        place = (lane_of(op), op.step)
        found = _until(self._gone.get(place, ()), op)
        found += [] if addressed else _until(self._blank.get(place, ()), op)
        names = [file for _, file in sorted(found) if file != op.file]
        if not names:
            return None
        return Lost(len(set(names)), self._names[names[-1]])


_Ordered = Mapping[tuple[Lane, "int | None"], "list[tuple[_Moment, str]]"]


def _in_order(found: Mapping[tuple[Lane, int | None], Mapping[str, _Moment]]) -> _Ordered:
    return {
        place: sorted((moment, file) for file, moment in files.items())
        for place, files in found.items()
    }


def _until(files: Iterable[tuple[_Moment, str]], op: OpRecord) -> list[tuple[_Moment, str]]:
    ordered = list(files)
    if op.start_ns is None:
        return ordered
    return ordered[: bisect_right(ordered, (_moment(op), "\U0010ffff"))]


def _moment(op: OpRecord) -> _Moment:
    _, start, task, *_ = sequence_key(op)
    return (start, -1 if op.start_ns is None else task)


def _name_of(op: OpRecord) -> str:
    return f"{op.op_type} {op.op_name}".strip()


def lost_call(file: str, place: Place, name: DumpName | None, number: int) -> OpRecord:
    """The execution whose file gave nothing, as far as the file's name tells."""
    if name is None:
        return OpRecord(
            op_type="", op_name="", step=place.step, device=place.device, file=file, place=place,
            op_id=number,
        )  # fmt: skip
    return OpRecord(
        op_type=name.op_type,
        op_name=name.op_name,
        task_id=name.task_id,
        stream_id=name.stream_id,
        timestamp=name.timestamp,
        start_ns=None if name.timestamp is None else timestamp_ns(name.timestamp),
        step=place.step,
        device=place.device,
        file=file,
        place=place,
        op_id=number,
    )
