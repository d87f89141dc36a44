"""A pickle interpreter that can only make tensors, plain containers and scalars.

A pickle is a program, and Python's own interpreters run it: they import what it names, call what
it says, allocate what it announces and hash what it builds. This one knows the operations that
`torch.save` writes (protocols 2 to 5) and the closed list of `torch_names`. Every length is
checked against the bytes that are there, and the number of operations is bounded, which bounds
memory and time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import field
from functools import lru_cache
from typing import NamedTuple

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.readers.torch_names import (
    PickledDict,
    PickledTensor,
    Storage,
    call_name,
    resolve_name,
    resolve_storage,
)
from dumpscope.records import record

__all__ = ["MAX_OPERATIONS", "Pickled", "unpickle"]

MAX_OPERATIONS = 3_000_000
"""A tensor takes about 30 operations; no dump of tensors comes near this."""

_MAX_NAME = 512
_MAX_INTEGER_BYTES = 1024
_MAX_REMEMBERED = 2048


class Pickled(NamedTuple):
    """What a pickle makes, read-only.

    Attributes
    ----------
    value
        `PickledTensor`, `Storage`, `PickledDict`, list, tuple, str, bytes, int, float, complex,
        bool, `TorchName` or `None`. Containers may hold each other any number of times, and
        themselves. The contents of byte strings are dropped.
    end
        Offset of the first byte behind the pickle.
    storages
        Every storage that it names, in order, some more than once.
    """

    value: object
    end: int
    storages: tuple[Storage, ...]


def unpickle(data: bytes) -> Pickled:
    """Interpret the pickle at the start of `data`.

    Parameters
    ----------
    data
        The bytes; what follows the pickle is left alone.

    Raises
    ------
    CorruptDumpError
        It names something that is not on the list, or is no pickle of the kind. `offset` counts
        from the start of `data`.
    TruncatedDumpError
        It ends before it is complete.
    """
    return _unpickle_again(data) if len(data) <= _MAX_REMEMBERED else _unpickle(data)


def _unpickle(data: bytes) -> Pickled:
    machine = _Machine(data)
    try:
        value = machine.run()
    except DumpReadError as error:
        if error.offset is None:
            error.offset = machine.start
        raise
    except IndexError:
        if machine.start + 1 >= len(data):
            raise TruncatedDumpError(
                "the pickle ends before its last operation (STOP)", offset=len(data)
            ) from None
        raise CorruptDumpError(
            "the pickle takes more from its stack than it put there", offset=machine.start
        ) from None
    return Pickled(value, machine.position, tuple(machine.storages))


# Tensors of one shape and type have the same pickle, and a dump has thousands of them.
_unpickle_again = lru_cache(maxsize=512)(_unpickle)


@record(frozen=False, slots=True)
class _Machine:
    """State of one run: `start` is where the current operation begins."""

    data: bytes
    position: int = 0
    start: int = 0
    stack: list[object] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, object] = field(default_factory=dict)
    storages: list[Storage] = field(default_factory=list)

    def run(self) -> object:
        data = self.data
        stack = self.stack
        memo = self.memo
        operations = _OPERATIONS
        for _ in range(MAX_OPERATIONS):
            position = self.position
            self.start = position
            code = data[position]
            # Every second operation of a saved tensor is one of these three.
            if code == _PUT:
                memo[data[position + 1]] = stack[-1]
                self.position = position + 2
                continue
            if code == _SMALL_INTEGER:
                stack.append(data[position + 1])
                self.position = position + 2
                continue
            self.position = position + 1
            if code == _MARK:
                self.marks.append(len(stack))
                continue
            if code == _STOP:
                return stack.pop()
            operation = operations.get(code)
            if operation is None:
                raise CorruptDumpError(
                    f"the pickle holds operation 0x{code:02x}, which torch.save does not write"
                )
            operation(self)
        raise CorruptDumpError(
            f"the pickle takes more than {MAX_OPERATIONS:,} operations: no dump of tensors does"
        )

    # --- reading ------------------------------------------------------------------------------

    def take(self, length: int) -> bytes:
        start = self.position
        self.skip(length)
        return self.data[start : self.position]

    def skip(self, length: int) -> None:
        end = self.position + length
        if end > len(self.data):
            raise TruncatedDumpError(
                f"expected {length} more bytes of the pickle, "
                f"found {len(self.data) - self.position}"
            )
        self.position = end

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def text(self, length: int, encoding: str = "utf-8") -> str:
        raw = self.take(length)
        try:
            return raw.decode(encoding, "surrogatepass" if encoding == "utf-8" else "strict")
        except UnicodeDecodeError:
            raise CorruptDumpError("a text in the pickle is not UTF-8") from None

    # --- the stack ----------------------------------------------------------------------------

    def push_bytes(self, length: int) -> None:
        self.skip(length)
        self.stack.append(b"")

    def push_tuple(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(items)

    def push_long(self, length: int) -> None:
        if length > _MAX_INTEGER_BYTES:
            raise CorruptDumpError(f"an integer of the pickle has {length} bytes")
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def pop_to_mark(self) -> list[object]:
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def pop(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def extend_list(self, items: list[object]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise CorruptDumpError("the pickle appends to something that is no list")
        target.extend(items)

    def extend_dict(self, items: list[object]) -> None:
        target = self.stack[-1]
        if type(target) is not PickledDict or len(items) % 2:
            raise CorruptDumpError("the pickle sets an item of something that is no dictionary")
        target.extend(zip(items[::2], items[1::2], strict=True))

    def set_item(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        self.extend_dict([key, value])

    def remember(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        try:
            self.stack.append(self.memo[index])
        except KeyError:
            raise CorruptDumpError(f"the pickle's memo has no entry {index}") from None

    # --- names and calls ----------------------------------------------------------------------

    def push_global(self) -> None:
        start = self.position
        end = self.data.find(b"\n", start, start + _MAX_NAME)
        end = self.data.find(b"\n", end + 1, start + _MAX_NAME) if end >= 0 else end
        if end < 0:
            if start + _MAX_NAME > len(self.data):
                raise TruncatedDumpError("the pickle ends within a name")
            raise CorruptDumpError(f"a name in the pickle is longer than {_MAX_NAME} bytes")
        module, _, name = self.text(end - start).partition("\n")
        self.position = end + 1
        self.stack.append(resolve_name(module, name))

    def push_stack_global(self) -> None:
        name = self.stack.pop()
        module = self.stack.pop()
        if type(module) is not str or type(name) is not str:
            raise CorruptDumpError("the pickle names a global that is no text")
        self.stack.append(resolve_name(module, name))

    def push_storage(self) -> None:
        storage = resolve_storage(self.stack.pop())
        self.storages.append(storage)
        self.stack.append(storage)

    def call(self) -> None:
        arguments = self.stack.pop()
        function = self.stack.pop()
        self.stack.append(call_name(function, arguments))

    def build(self) -> None:
        """Drop the state of an object: a tensor's or dictionary's is nothing to look at."""
        self.stack.pop()
        if type(self.stack[-1]) not in (PickledDict, PickledTensor):
            raise CorruptDumpError("the pickle gives a state to something that has none")

    def check_protocol(self) -> None:
        protocol = self.number(1)
        if protocol > 5:
            raise CorruptDumpError(f"expected pickle protocol 2 to 5, found {protocol}")

    def check_frame(self) -> None:
        length = self.number(8)
        if length > len(self.data) - self.position:
            raise TruncatedDumpError(
                f"expected a frame of {length} bytes in the pickle, "
                f"found {len(self.data) - self.position}"
            )


_STOP = ord(".")
_MARK = ord("(")
_PUT = ord("q")
_SMALL_INTEGER = ord("K")
_F8 = struct.Struct(">d")

_OPERATIONS: dict[int, Callable[[_Machine], None]] = {
    ord(code): operation
    for code, operation in {
        "\x80": _Machine.check_protocol,
        "\x95": _Machine.check_frame,
        "0": _Machine.pop,
        "1": lambda m: m.pop_to_mark().clear(),
        "2": lambda m: m.stack.append(m.stack[-1]),
        "N": lambda m: m.stack.append(None),
        "\x88": lambda m: m.stack.append(True),
        "\x89": lambda m: m.stack.append(False),
        "J": lambda m: m.stack.append(int.from_bytes(m.take(4), "little", signed=True)),
        "M": lambda m: m.stack.append(m.number(2)),
        "\x8a": lambda m: m.push_long(m.number(1)),
        "\x8b": lambda m: m.push_long(m.number(4)),
        "G": lambda m: m.stack.append(_F8.unpack(m.take(8))[0]),
        "X": lambda m: m.stack.append(m.text(m.number(4))),
        "\x8c": lambda m: m.stack.append(m.text(m.number(1))),
        "\x8d": lambda m: m.stack.append(m.text(m.number(8))),
        "T": lambda m: m.stack.append(m.text(m.number(4), "latin-1")),
        "U": lambda m: m.stack.append(m.text(m.number(1), "latin-1")),
        "B": lambda m: m.push_bytes(m.number(4)),
        "C": lambda m: m.push_bytes(m.number(1)),
        "\x8e": lambda m: m.push_bytes(m.number(8)),
        "\x96": lambda m: m.push_bytes(m.number(8)),
        ")": lambda m: m.stack.append(()),
        "t": lambda m: m.stack.append(tuple(m.pop_to_mark())),
        "\x85": lambda m: m.push_tuple(1),
        "\x86": lambda m: m.push_tuple(2),
        "\x87": lambda m: m.push_tuple(3),
        "]": lambda m: m.stack.append([]),
        "l": lambda m: m.stack.append(m.pop_to_mark()),
        "a": lambda m: m.extend_list([m.stack.pop()]),
        "e": lambda m: m.extend_list(m.pop_to_mark()),
        # A set is a list here: nothing is hashed.
        "\x8f": lambda m: m.stack.append([]),
        "\x90": lambda m: m.extend_list(m.pop_to_mark()),
        "\x91": lambda m: m.stack.append(m.pop_to_mark()),
        "}": lambda m: m.stack.append(PickledDict()),
        "s": _Machine.set_item,
        "u": lambda m: m.extend_dict(m.pop_to_mark()),
        "c": _Machine.push_global,
        "\x93": _Machine.push_stack_global,
        "R": _Machine.call,
        "\x81": _Machine.call,
        "b": _Machine.build,
        "Q": _Machine.push_storage,
        "r": lambda m: m.remember(m.number(4)),
        "\x94": lambda m: m.remember(len(m.memo)),
        "h": lambda m: m.recall(m.number(1)),
        "j": lambda m: m.recall(m.number(4)),
    }.items()
}
