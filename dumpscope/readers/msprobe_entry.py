"""One entry of msprobe's dump.json as an execution.

==================================  ==========================================================
member of the entry                 what it is
==================================  ==========================================================
`input_args`, `input`               list of arguments (of gradients, for a backward): inputs
`input_kwargs`                      arguments by name: inputs
`parameters`                        a module's parameters by name: inputs
`output`                            list of results: outputs
`{parameter}` (parameters_grad)     its gradient: output
anything (debug.json)               the variable that was saved: outputs
`is_recompute`, `is_nan`            attributes; `is_nan` is a flag of a register
==================================  ==========================================================

Arguments nest in lists and dictionaries. What stands in them:

=====================================================  =======================================
`{type, dtype, shape, Max, Min, Mean, Norm, …}`        a tensor; `data_name` names its file
`{type, value}`                                        a Python value; a float is a tensor of
                                                       no dimensions
`{class_type: …P2POp, op, peer, tensor}`               one message of a batch
`{type: torch.ProcessGroup, group_ranks, group_id}`    the ranks that take part
`null`                                                 nothing
=====================================================  =======================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from dumpscope.dtypes import dtype_of_label
from dumpscope.errors import CorruptDumpError, DumpReadError
from dumpscope.layouts import plain
from dumpscope.model import FORM_RAW, FORM_STATISTICS, Role
from dumpscope.msprobe_names import ProbeName, module_backward, parse_probe_name
from dumpscope.readers.arguments import Positions, scalar_record
from dumpscope.readers.array_records import array_geometry
from dumpscope.readers.msprobe_statistics import judge_statistics, read_number
from dumpscope.readers.protocol import Execution, TensorRecord

__all__ = ["FileOpener", "make_execution", "shape_of"]

_DEEPEST = 400
"""As deep as msprobe itself goes."""

_MOST_AXES = 32
_MAX_COUNT = 1 << 58
_LONGEST_PATH = 512
_LONGEST_TEXT = 256

FileOpener = Callable[[str, TensorRecord], TensorRecord | None]
"""Takes `data_name` and the record without data; returns it with data, `None` without the file."""


class _Leaf(NamedTuple):
    """`wanted` is the position that the tensor stands at, where it stands in the list itself."""

    role: Role
    wanted: int | None
    path: str
    value: Mapping[str, object]


class _Node(NamedTuple):
    value: object
    role: Role
    wanted: int | None
    path: str
    depth: int


def make_execution(
    key: str,
    entry: object,
    order: int,
    open_file: FileOpener,
    faults: list[DumpReadError],
) -> Execution:
    """Make the execution of one entry.

    Parameters
    ----------
    key, entry
        The member of `data`.
    open_file
        What opens the tensors' own files.
    faults
        Gets what is wrong with single tensors.

    Raises
    ------
    CorruptDumpError
        The entry is nothing that msprobe writes.
    """
    name = parse_probe_name(key)
    if isinstance(entry, list) and name.kind == "debug":
        entry = {"": entry}
    if not isinstance(entry, dict):
        if entry is not None:
            raise CorruptDumpError(f"the entry {key[:120]!a} is no object")
        entry = {}
    attributes: list[tuple[str, str]] = []
    tensors = list(_records(name, entry, open_file, faults, attributes))
    attributes.extend(
        (flag, _text(entry[flag]))
        for flag in ("is_recompute", "is_nan")
        if entry.get(flag) not in (None, False)
    )
    if _is_in_place(name, entry):
        attributes.append(("in_place", "true"))
    valued = any(t.data is not None and t.stats is None for t in tensors)
    return Execution(
        name.op_type,
        key,
        tensors,
        order=order,
        form=FORM_RAW if valued else FORM_STATISTICS,
        container=name.container,
        parent=module_backward(key),
        attributes=tuple(attributes),
    )


def _records(
    name: ProbeName,
    entry: dict[str, object],
    open_file: FileOpener,
    faults: list[DumpReadError],
    attributes: list[tuple[str, str]],
) -> Iterator[TensorRecord]:
    positions = {
        "input": Positions(_length_of(entry, "input_args", "input")),
        "output": Positions(_length_of(entry, "output")),
    }
    for leaf in _leaves(name, entry):
        value = leaf.value
        try:
            if "dtype" in value and "shape" in value:
                index = positions[leaf.role].take(leaf.wanted)
                yield _tensor_record(leaf, index, open_file)
                continue
            number = _number_of(value)
            if number is None or (leaf.role == "input" and math.isinf(number)):
                # An infinite argument (norm's p, a mask's fill value) is a constant of the
                # program; what it does shows in the output.
                _note_argument(name, leaf, attributes)
            else:
                index = positions[leaf.role].take(leaf.wanted)
                yield scalar_record(leaf.role, index, number, leaf.path)
        except (ValueError, DumpReadError) as error:
            message = error.message if isinstance(error, DumpReadError) else str(error)
            faults.append(CorruptDumpError(f"{name.stem[:120]!a}, {leaf.path}: {message}"))
            index = positions[leaf.role].take(leaf.wanted)
            yield TensorRecord(
                leaf.role, index, "undefined", plain(()), unchecked="unreadable", name=leaf.path
            )


def _tensor_record(leaf: _Leaf, index: int, open_file: FileOpener) -> TensorRecord:
    value = leaf.value
    dtype = dtype_of_label(_text(value["dtype"]))
    shape = shape_of(value["shape"])
    record = TensorRecord(
        leaf.role,
        index,
        dtype.name,
        array_geometry(shape),
        size_bytes=dtype.nbytes(math.prod(shape)),
        name=leaf.path,
    )
    data_name = value.get("data_name")
    if isinstance(data_name, str) and data_name:
        opened = open_file(data_name, record)
        if opened is not None:
            return opened
    judged = judge_statistics(value, dtype, shape)
    record.stats = judged.stats
    record.unchecked = judged.unchecked
    record.notes = judged.notes
    return record


def shape_of(value: object) -> tuple[int, ...]:
    """Read a shape.

    Raises
    ------
    CorruptDumpError
        It is no list of sizes, or no tensor has it.
    """
    if isinstance(value, list) and len(value) <= _MOST_AXES:
        sizes = [size for size in value if type(size) is int and 0 <= size < _MAX_COUNT]
        if len(sizes) == len(value) and math.prod(filter(None, sizes)) < _MAX_COUNT:
            return tuple(sizes)
    raise CorruptDumpError(f"expected a shape, found {value!r:.60}")


# --- what an entry holds -------------------------------------------------------------------------


def _leaves(name: ProbeName, entry: dict[str, object]) -> Iterator[_Leaf]:
    """Yield tensors and Python values in the order of the entry."""
    stack = list(_sections(name, entry))
    stack.reverse()
    children: list[tuple[str, object, int | None]]
    while stack:
        node = stack.pop()
        value = node.value
        if isinstance(value, dict):
            if isinstance(value.get("type"), str):
                yield _Leaf(node.role, node.wanted, node.path, value)
                continue
            message = value.get("class_type")
            if isinstance(message, str) and message.endswith("P2POp"):
                # What a receive is given to write into is no input.
                receives = "recv" in _text(value.get("op"))
                if receives and node.role == "input":
                    continue
                value = {"tensor": value.get("tensor")}
            children = [(str(k)[:_LONGEST_TEXT], v, None) for k, v in value.items()]
        elif isinstance(value, list):
            whole = node.depth == 0
            children = [(str(i), v, i if whole else None) for i, v in enumerate(value)]
        else:
            continue
        if node.depth >= _DEEPEST:
            raise CorruptDumpError(
                f"the arguments of {name.stem[:120]!a} nest deeper than {_DEEPEST} levels"
            )
        stack.extend(
            _Node(child, node.role, wanted, _join(node.path, part), node.depth + 1)
            for part, child, wanted in reversed(children)
        )


def _sections(name: ProbeName, entry: dict[str, object]) -> Iterator[_Node]:
    """Yield the members of an entry that hold tensors, with the role of each."""
    if name.kind == "debug":
        yield _Node(entry[""] if list(entry) == [""] else entry, "output", None, "", 0)
        return
    known = False
    for member, role, path in (
        ("input_args", "input", "input"),
        ("input", "input", "input"),
        ("input_kwargs", "input", "kwargs"),
        ("parameters", "input", "parameters"),
        ("output", "output", "output"),
    ):
        if member not in entry:
            continue
        known = True
        value = entry[member]
        single = isinstance(value, dict) and isinstance(value.get("type"), str)
        yield _Node([value] if single else value, _ROLES[role], None, path, 0)
    if not known or name.kind == "parameters_grad":
        for member, value in entry.items():
            # The gradient of one parameter stands in a list of its own.
            inner = value[0] if isinstance(value, list) and len(value) == 1 else value
            if isinstance(inner, (list, dict)):
                yield _Node(inner, "output", None, member[:_LONGEST_TEXT], 1)


_ROLES: Mapping[str, Role] = {"input": "input", "output": "output"}


def _length_of(entry: dict[str, object], *members: str) -> int:
    for member in members:
        value = entry.get(member)
        if isinstance(value, list):
            return len(value)
    return 0


def _number_of(value: Mapping[str, object]) -> float | None:
    """Return the number that a Python float was, `None` for every other value."""
    kind = value.get("type")
    if not isinstance(kind, str) or not kind.lower().startswith("float"):
        return None
    number = read_number(value.get("value"))
    return None if number is None else float(number)


def _note_argument(name: ProbeName, leaf: _Leaf, attributes: list[tuple[str, str]]) -> None:
    """Keep what tells where a message goes, and infinite arguments."""
    value = leaf.value
    ranks = value.get("group_ranks")
    if isinstance(ranks, list):
        attributes.append(("group_ranks", ",".join(map(_text, ranks[:65536]))))
    if "group_id" in value:
        attributes.append(("group_id", _text(value["group_id"])))
    argument = value.get("value")
    infinite = isinstance(argument, float) and math.isinf(argument)
    if infinite or (
        name.stem.startswith("Distributed.")
        and isinstance(argument, (int, str))
        and leaf.role == "input"
    ):
        attributes.append((leaf.path, _text(argument)))


def _is_in_place(name: ProbeName, entry: dict[str, object]) -> bool:
    """Whether an API writes over its first argument."""
    if name.kind != "api" or name.direction != "forward":
        return False
    api = name.stem.rpartition(".")[2]
    if name.stem.startswith("Distributed."):
        return True
    if api.startswith("__"):
        return api == "__setitem__" or (api.startswith("__i") and api != "__invert__")
    kwargs = entry.get("input_kwargs")
    flag = kwargs.get("inplace") if isinstance(kwargs, dict) else None
    return api.endswith("_") or (isinstance(flag, dict) and flag.get("value") is True)


def _text(value: object) -> str:
    """Return a value of the JSON as short text."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT]
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return str(value)[:_LONGEST_TEXT] if isinstance(value, (int, float)) else "…"


def _join(before: str, after: str) -> str:
    return f"{before}.{after}"[-_LONGEST_PATH:] if before else after
