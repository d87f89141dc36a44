"""Executions of containers that hold many arrays under keys (.npz, .safetensors)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from dumpscope.model import FORM_CONVERTED, Role
from dumpscope.readers.array_names import ArrayName
from dumpscope.readers.array_roles import locate_key
from dumpscope.readers.protocol import Execution, TensorRecord

__all__ = ["KeyedArray", "group_arrays"]


class KeyedArray(NamedTuple):
    """One array and the key that it has in its container."""

    key: str
    record: TensorRecord


def group_arrays(name: ArrayName, arrays: Iterable[KeyedArray]) -> Iterator[Execution]:
    """Put the arrays of one file into executions.

    Arrays whose keys give roles belong to one operator, called after the file and what stands
    before the role in the key (`layer1.input`). Any other array is the output of an operator
    called after the file and the key; where the file's own name says that it holds inputs, or
    that it is one array of a dump, all of them are that.

    Parameters
    ----------
    name
        What the file's name says.
    arrays
        Their records get role and index here.
    """
    owners: dict[str, _Slots] = {}
    bare: list[KeyedArray] = []
    for array in arrays:
        owner, role, number = locate_key(array.key)
        if role is None:
            bare.append(array)
        else:
            owners.setdefault(owner, _Slots()).add(array.record, role, number)
    for owner, slots in owners.items():
        yield _owned(name, owner).execution(slots.records, FORM_CONVERTED)
    if name.role == "input" or name.partial:
        slots = _Slots()
        for array in bare:
            slots.add(array.record, name.role, name.slot)
        if bare:
            yield name.execution(slots.records, FORM_CONVERTED)
        return
    alone = len(bare) == 1 and not owners and bare[0].key == "arr_0"
    for order, array in enumerate(bare):
        execution = _owned(name, "" if alone else array.key).execution(
            [array.record], FORM_CONVERTED
        )
        execution.order = order
        yield execution


class _Slots:
    """The arrays of one execution, each in a slot of its own."""

    def __init__(self) -> None:
        self.records: list[TensorRecord] = []
        self._taken: set[tuple[Role, int]] = set()
        self._next: dict[Role, int] = {"input": 0, "output": 0}

    def add(self, record: TensorRecord, role: Role, number: int | None) -> None:
        """Give an array its role and the slot that its key names, or the next free one."""
        index = self._next[role] if number is None or (role, number) in self._taken else number
        self._taken.add((role, index))
        self._next[role] = max(self._next[role], index + 1)
        record.role = role
        record.index = index
        self.records.append(record)


def _owned(name: ArrayName, owner: str) -> ArrayName:
    return replace(name, op_name=f"{name.op_name}.{owner}") if owner else name
