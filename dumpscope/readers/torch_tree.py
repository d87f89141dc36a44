"""The executions in a saved object: what its keys say, and what the file's name says.

==========================================  ====================================================
object                                      executions
==========================================  ====================================================
a tensor, a list of tensors                 outputs of an operator called after the file; inputs
                                            where its name says so (`nan_input.pt`)
{"input": …, "output": …}                   that operator, with inputs and outputs
{"grad_output": …, "grad_input": …}         its backward, the other way round
{"conv1": tensor, …}                        outputs of operators called after the file and the key
{"conv1": {"input": …, "output": …}, …}     operators called after the file and the key
==========================================  ====================================================

Numbers with a fraction are arguments and results too where a key says so; elsewhere they are
settings (`lr`, `best_loss`), and only a NaN counts. An infinite argument is a constant.
Containers may hold each other any number of times, so each is looked into once for each role.
"""

from __future__ import annotations

import cmath
from collections.abc import Iterator
from dataclasses import field
from typing import NamedTuple

from dumpscope.errors import CorruptDumpError
from dumpscope.model import Role
from dumpscope.readers.array_roles import locate_key
from dumpscope.readers.torch_names import PickledDict, PickledTensor, Storage
from dumpscope.records import record

__all__ = ["Leaf", "TreeExecution", "find_executions"]

_DEEPEST = 100
_LONGEST_KEY = 200
_LONGEST_NAME = 1000

Value = PickledTensor | float | complex


class Leaf(NamedTuple):
    """One tensor or number: `position` is where it stands in its list, `path` the keys to it."""

    role: Role
    value: Value
    position: int | None
    path: str


@record(frozen=False, slots=True)
class TreeExecution:
    """An operator: `owner` is what the keys add to the name of the file."""

    owner: str
    leaves: list[Leaf] = field(default_factory=list)


class _Node(NamedTuple):
    """A value that is still to be looked at. `role` is `None` until a key says one."""

    value: object
    owner: str
    role: Role | None
    position: int | None
    path: str
    depth: int


def find_executions(value: object, role: Role | None, default: Role) -> list[TreeExecution]:
    """Put the tensors and numbers of an object into executions.

    Parameters
    ----------
    value
        As `unpickle` gives it.
    role
        What the name of the file says of everything in it, `None` when it does not.
    default
        The role of what no key says a role of.

    Returns
    -------
    list
        In the order of the object.

    Raises
    ------
    CorruptDumpError
        It nests deeper than any operator's arguments.
    """
    if isinstance(value, PickledTensor):  # by far the most frequent
        return [TreeExecution("", [Leaf(role or default, value, None, "")])]
    found: dict[str, TreeExecution] = {}
    seen: set[tuple[int, Role | None]] = set()
    if role is not None and isinstance(value, PickledDict) and _has_roles(value):
        role = None
    stack = [_Node(value, "", role, None, "", 0)]
    while stack:
        node = stack.pop()
        value = node.value
        if isinstance(value, Storage):
            value = PickledTensor(value, value.dtype or "uint8", 0, (value.count,), (1,))
        if isinstance(value, (float, complex)) and not _matters(value, node.role):
            continue
        if isinstance(value, (PickledTensor, float, complex)):
            owner = found.setdefault(node.owner, TreeExecution(node.owner))
            owner.leaves.append(Leaf(node.role or default, value, node.position, node.path))
        elif isinstance(value, (list, tuple)):
            if (id(value), node.role) in seen:
                continue
            seen.add((id(value), node.role))
            if node.depth >= _DEEPEST:
                raise CorruptDumpError(
                    f"its containers nest deeper than {_DEEPEST} levels, which no operator's "
                    "arguments do"
                )
            stack.extend(reversed(list(_children(node, value))))
    return list(found.values())


def _children(node: _Node, value: list[object] | tuple[object, ...]) -> Iterator[_Node]:
    depth = node.depth + 1
    if isinstance(value, PickledDict):
        for key, item in value:
            yield _keyed(node, _text_of(key), item, depth)
        return
    for position, item in enumerate(value):
        path = _join(node.path, str(position))
        owner = node.owner
        if node.role is None and isinstance(item, PickledDict):
            owner = _join(owner, str(position))
        yield _Node(item, owner, node.role, position, path, depth)


def _keyed(node: _Node, key: str, item: object, depth: int) -> _Node:
    """Follow a key: it names a role, or an operator, or one of several arguments."""
    path = _join(node.path, key)
    if node.role is not None:
        return _Node(item, node.owner, node.role, None, path, depth)
    before, role, position = locate_key(key)
    if role is None:
        return _Node(item, _join(node.owner, key), None, None, path, depth)
    owner = _join(node.owner, before) if before else node.owner
    if key[len(before) :].lstrip("./").lower().startswith("grad"):
        owner = _join(owner, "backward")
    return _Node(item, owner, role, position, path, depth)


def _matters(value: float | complex, role: Role | None) -> bool:
    """Whether a number is more than a setting, or a constant like the p of a norm."""
    if role is None:
        return cmath.isnan(value)
    return role == "output" or not cmath.isinf(value)


def _has_roles(value: PickledDict) -> bool:
    return any(locate_key(_text_of(key))[1] is not None for key, _ in value)


def _text_of(key: object) -> str:
    """Return a key as text; only names and numbers say anything."""
    if isinstance(key, str):
        return key[:_LONGEST_KEY]
    if isinstance(key, int) and abs(key) < 1 << 63:
        return str(key)
    return "key"


def _join(before: str, after: str) -> str:
    return f"{before}.{after}"[-_LONGEST_NAME:] if before else after
