"""Bytes of files that torch.save writes, made operation by operation.

Imports nothing from dumpscope and not torch either: the operations are those that PyTorch 2.13
writes (looked at with pickletools), so that a reader is tested against the format and not
against its own idea of it.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterable, Mapping
from typing import Any

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C

STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
    "qint8": "QInt8Storage",
}


# --- operations: each pushes one value ---------------------------------------------------------


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def real(value: float) -> bytes:
    return b"G" + struct.pack(">d", value)


def row(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def sizes(values: Iterable[int]) -> bytes:
    return row(*map(number, values))


def series(*items: bytes) -> bytes:
    return b"](" + b"".join(items) + b"e"


def table(**items: bytes) -> bytes:
    return table_of([(text(key), item) for key, item in items.items()])


def table_of(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"}(" + b"".join(key + item for key, item in pairs) + b"u"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + row(*arguments) + b"R"


def ordered(*pairs: tuple[str, bytes]) -> bytes:
    """An OrderedDict with a state, as `state_dict()` gives it."""
    empty = name("collections", "OrderedDict") + b")R"
    items = b"".join(text(key) + item for key, item in pairs)
    return empty + b"(" + items + b"u" + table(_metadata=b"}") + b"b"


def storage(key: str, kind: str, count: int) -> bytes:
    kinds = name("torch.storage", "UntypedStorage") if kind == "bytes" else name("torch", kind)
    return row(text("storage"), kinds, text(key), text("cpu"), number(count)) + b"Q"


def tensor(
    key: str,
    dtype: str,
    shape: Iterable[int],
    *,
    count: int | None = None,
    strides: Iterable[int] | None = None,
    offset: int = 0,
    itemsize: int = 1,
) -> bytes:
    """Return the call that makes a tensor; types without a storage of their own go over bytes."""
    dims = tuple(shape)
    steps = list(strides) if strides is not None else contiguous(dims)
    total = 1
    for dim in dims:
        total *= dim
    total = total if count is None else count
    if dtype in STORAGES:
        return call(
            name("torch._utils", "_rebuild_tensor_v2"),
            storage(key, STORAGES[dtype], total),
            number(offset),
            sizes(dims),
            sizes(steps),
            b"\x89",
            name("collections", "OrderedDict") + b")R",
        )
    return call(
        name("torch._utils", "_rebuild_tensor_v3"),
        storage(key, "bytes", total * itemsize),
        number(offset),
        sizes(dims),
        sizes(steps),
        b"\x89",
        name("collections", "OrderedDict") + b")R",
        name("torch", dtype),
    )


def contiguous(shape: tuple[int, ...]) -> list[int]:
    steps = []
    step = 1
    for dim in reversed(shape):
        steps.append(step)
        step *= dim
    return steps[::-1]


def pickled(value: bytes, protocol: int = 2) -> bytes:
    return b"\x80" + bytes([protocol]) + value + b"."


# --- files ---------------------------------------------------------------------------------------


def archive(
    value: bytes,
    storages: Mapping[str, bytes] | None = None,
    *,
    prefix: str = "archive",
    byteorder: str | None = "little",
    compression: int = zipfile.ZIP_STORED,
    raw_pickle: bytes | None = None,
) -> bytes:
    """Return a .pt file: `value` is the operations that make the object."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as packed:
        packed.writestr(f"{prefix}/data.pkl", raw_pickle or pickled(value))
        if byteorder is not None:
            packed.writestr(f"{prefix}/byteorder", byteorder)
        for key, content in (storages or {}).items():
            packed.writestr(f"{prefix}/data/{key}", content)
        packed.writestr(f"{prefix}/version", "3\n")
    return out.getvalue()


def streamed_archive(value: bytes, storages: Mapping[str, bytes]) -> bytes:
    """Return the file as torch itself writes it: sizes stand behind the members only."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, chunk: Any) -> int:
            self.content += bytes(chunk)
            return len(chunk)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as packed:
        packed.writestr("archive/data.pkl", pickled(value))
        packed.writestr("archive/byteorder", "little")
        for key, content in storages.items():
            packed.writestr(f"archive/data/{key}", content)
        packed.writestr("archive/version", "3\n")
    return pipe.content


def legacy(
    value: bytes, storages: Mapping[str, tuple[int, bytes]], *, little: bool = True
) -> bytes:
    """Return a file from before PyTorch 1.6; of each storage its count and bytes."""
    flag = b"\x88" if little else b"\x89"
    parts = [
        pickled(number(MAGIC_NUMBER)),
        pickled(number(1001)),
        pickled(table(protocol_version=number(1001), little_endian=flag)),
        pickled(value),
        pickled(series(*map(text, storages))),
    ]
    for count, content in storages.values():
        parts.append(struct.pack("<q", count) + content)
    return b"".join(parts)
