"""The protobuf schema of a CANN dump's header, declared from its field table.

Field numbers and types are those of `dump_data.proto` and `dump_task.proto` in the public CANN
sources, both generations in one table (see `adump` for the file around the header). Three things
differ on purpose:

- strings are declared as bytes: names that are not UTF-8 occur, and some protobuf runtimes
  refuse a message which holds one in a string field;
- enums are plain integers: codes that nobody knows yet must come through as numbers;
- `OpOutput.dim_range` (field 10) is left out: nothing needs it.

The schema lives in a descriptor pool of its own, so that it cannot clash with the vendor's
generated modules in the same process. Works with protobuf 3.20.3 and later, on every runtime.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol, cast

from dumpscope.errors import CorruptDumpError, DumpReadError
from dumpscope.readers.adump_wire import walk_fields

__all__ = [
    "Header",
    "HeaderInput",
    "HeaderOutput",
    "HeaderShape",
    "HeaderSpan",
    "parse_header",
    "try_parse",
]


class HeaderShape(Protocol):
    dim: Sequence[int]


class HeaderOrigin(Protocol):
    name: bytes
    output_index: int
    data_type: int
    format: int


class HeaderInput(Protocol):
    """One entry `OpInput`."""

    data_type: int
    format: int
    shape: HeaderShape
    data: bytes
    size: int
    original_shape: HeaderShape
    sub_format: int
    address: int
    offset: int
    input_type: int


class HeaderOutput(Protocol):
    """One entry `OpOutput`."""

    data_type: int
    format: int
    shape: HeaderShape
    original_op: HeaderOrigin
    data: bytes
    size: int
    original_shape: HeaderShape
    sub_format: int
    address: int
    offset: int

    def HasField(self, name: str) -> bool:  # noqa: N802 - protobuf's own name
        """Say whether a message field is there."""


class HeaderSpan(Protocol):
    """One entry `OpBuffer` or `Workspace`: bytes behind the tensors."""

    data: bytes
    size: int


class HeaderAttribute(Protocol):
    name: bytes
    value: bytes


class Header(Protocol):
    """The message `DumpData`."""

    version: bytes
    dump_time: int
    output: Sequence[HeaderOutput]
    input: Sequence[HeaderInput]
    buffer: Sequence[HeaderSpan]
    op_name: bytes
    attr: Sequence[HeaderAttribute]
    space: Sequence[HeaderSpan]
    dfx_message: bytes


_TABLE = {
    "Shape": "dim=1:*uint64",
    "OriginalOp": "name=1:bytes output_index=2:uint32 data_type=3:int32 format=4:int32",
    "OpAttr": "name=1:bytes value=2:bytes",
    "OpInput": (
        "data_type=1:int32 format=2:int32 shape=3:Shape data=4:bytes size=5:uint64 "
        "original_shape=6:Shape sub_format=7:int32 address=8:uint64 offset=9:uint64 "
        "arg_index=10:uint32 input_type=11:uint32"
    ),
    "OpOutput": (
        "data_type=1:int32 format=2:int32 shape=3:Shape original_op=4:OriginalOp data=5:bytes "
        "size=6:uint64 original_shape=7:Shape sub_format=8:int32 address=9:uint64 "
        "offset=11:uint64 arg_index=12:uint32"
    ),
    "OpBuffer": "buffer_type=1:int32 data=2:bytes size=3:uint64",
    "Workspace": "type=1:int32 data=2:bytes size=3:uint64 arg_index=4:uint32",
    "DumpData": (
        "version=1:bytes dump_time=2:uint64 output=3:*OpOutput input=4:*OpInput "
        "buffer=5:*OpBuffer op_name=6:bytes attr=7:*OpAttr space=8:*Workspace dfx_message=9:bytes"
    ),
}
"""Message -> `name=number:type` of its fields; `*` marks a repeated one."""

_PACKAGE = "dumpscope.adump"


class _MessageClass(Protocol):
    def FromString(self, data: bytes) -> object:  # noqa: N802 - protobuf's own name
        """Parse a serialized message."""


def _build() -> _MessageClass:
    """Build the class of `DumpData` with whatever protobuf runtime is installed."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "bytes": kinds.TYPE_BYTES,
        "uint64": kinds.TYPE_UINT64,
        "uint32": kinds.TYPE_UINT32,
        "int32": kinds.TYPE_INT32,
    }
    file = descriptor_pb2.FileDescriptorProto(
        name="dumpscope/adump.proto", package=_PACKAGE, syntax="proto3"
    )
    for message_name, fields in _TABLE.items():
        message = file.message_type.add(name=message_name)
        for text in fields.split():
            name, _, rest = text.partition("=")
            number, _, kind = rest.partition(":")
            field = message.field.add(name=name, number=int(number))
            field.label = kinds.LABEL_REPEATED if kind[0] == "*" else kinds.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in scalars:
                field.type = scalars[kind]
            else:
                field.type = kinds.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    # Through bytes, since the C++ runtime of 3.20 takes no message of another runtime's class.
    pool.AddSerializedFile(file.SerializeToString())
    descriptor = pool.FindMessageTypeByName(f"{_PACKAGE}.DumpData")
    get_class = getattr(message_factory, "GetMessageClass", None)
    if get_class is None:  # protobuf before 4.22
        get_class = getattr(message_factory.MessageFactory(pool), "GetPrototype")  # noqa: B009 - gone since
    return cast("_MessageClass", get_class(descriptor))


class _Runtime(NamedTuple):
    """How the protobuf runtime parses.

    `stops_early` says that it takes a 0 for the end of a message (the C++ one of 3.20 does): it
    then warns and returns half a message, where all others refuse the bytes.
    """

    parse: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    stops_early: bool


@cache
def _runtime() -> _Runtime:
    """Load protobuf and build the class: only where a dump is read, since it takes a while."""
    from google.protobuf.message import DecodeError

    parse = _build().FromString
    # What runtimes raise for bytes that are no message: the pure Python one lets some of its own
    # errors through, and runs out of stack on nested groups.
    errors = (DecodeError, RecursionError, ValueError, IndexError, TypeError, struct.error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parse(b"\0\0")
        except errors:
            return _Runtime(parse, errors, stops_early=False)
    return _Runtime(parse, errors, stops_early=True)


def parse_header(data: bytes) -> Header:
    """Parse a `DumpData`.

    Raises
    ------
    CorruptDumpError
        The bytes are no such message (without path and offset: the caller knows them).
    """
    parse, errors, stops_early = _runtime()
    try:
        if stops_early:
            _check_fields(data)
        return cast("Header", parse(data))
    except errors as error:
        raise CorruptDumpError(str(error)) from error


def try_parse(data: bytes) -> Header | None:
    """Parse a `DumpData`, `None` where the bytes are none."""
    try:
        return parse_header(data)
    except CorruptDumpError:
        return None


def _check_fields(data: bytes) -> None:
    """Raise CorruptDumpError unless the fields fill the bytes."""

    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    try:
        for _ in walk_fields(read, 0, len(data)):
            pass
    except DumpReadError as error:
        raise CorruptDumpError(error.message) from error
