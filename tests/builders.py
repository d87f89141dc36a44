"""Write the bytes of CANN dumps by hand, as the tests' own second opinion.

Nothing of dumpscope is imported here: what the readers get to read was not made by their own
tables. The protobuf wire format is encoded field by field, with the numbers of the public
`dump_data.proto` and `dump_task.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

UNDEFINED, FLOAT32, FLOAT16, INT8, UINT8, INT32, INT64, BOOL, FLOAT64 = 0, 1, 2, 3, 4, 7, 8, 11, 12
STRING, COMPLEX64, BFLOAT16, INT4, HIFLOAT8, FLOAT8_E5M2, FLOAT8_E4M3FN = 13, 16, 27, 28, 33, 34, 35
NCHW, NHWC, ND, NC1HWC0, FRACTAL_Z, FRACTAL_NZ = 0, 1, 2, 3, 4, 29

ONES_64 = (1 << 64) - 1


# --- protobuf's wire format -----------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    value &= ONES_64
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(field: int, value: int | None) -> bytes:
    """A varint field; proto3 leaves zeros out, and so does this."""
    return varint(field << 3) + varint(value) if value else b""


def bytes_field(field: int, value: bytes | str | None) -> bytes:
    if value is None:
        return b""
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def shape_field(field: int, shape: Sequence[int] | None, packed: bool) -> bytes:
    if shape is None:
        return b""
    if packed:
        content = bytes_field(1, b"".join(map(varint, shape))) if shape else b""
    else:
        content = b"".join(varint(1 << 3) + varint(dim) for dim in shape)
    return bytes_field(field, content)


# --- CANN dumps -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """One input or output: its bytes, and what the header says of them.

    `size` defaults to the number of bytes; `written` is what follows the header instead of
    `data` where the two differ.
    """

    data: bytes = b""
    dtype: int = FLOAT16
    shape: Sequence[int] | None = ()
    layout: int = ND
    original_shape: Sequence[int] | None = None
    sub_format: int = 0
    address: int = 0
    offset: int = 0
    size: int | None = None
    input_type: int = 0
    origin_name: str | None = None
    origin_format: int | None = None
    packed: bool = True
    inline: bool = False
    written: bytes | None = None

    @property
    def announced(self) -> int:
        return len(self.data) if self.size is None else self.size


def encode_input(tensor: Tensor) -> bytes:
    return b"".join(
        (
            number_field(1, tensor.dtype),
            number_field(2, tensor.layout),
            shape_field(3, tensor.shape, tensor.packed),
            bytes_field(4, tensor.data if tensor.inline else None),
            number_field(5, tensor.announced),
            shape_field(6, tensor.original_shape, tensor.packed),
            number_field(7, tensor.sub_format),
            number_field(8, tensor.address),
            number_field(9, tensor.offset),
            number_field(11, tensor.input_type),
        )
    )


def encode_output(tensor: Tensor) -> bytes:
    origin = None
    if tensor.origin_name is not None or tensor.origin_format is not None:
        origin = bytes_field(1, tensor.origin_name) + number_field(4, tensor.origin_format)
    return b"".join(
        (
            number_field(1, tensor.dtype),
            number_field(2, tensor.layout),
            shape_field(3, tensor.shape, tensor.packed),
            bytes_field(4, origin),
            bytes_field(5, tensor.data if tensor.inline else None),
            number_field(6, tensor.announced),
            shape_field(7, tensor.original_shape, tensor.packed),
            number_field(8, tensor.sub_format),
            number_field(9, tensor.address),
            number_field(11, tensor.offset),
        )
    )


def dump_message(
    inputs: Iterable[Tensor] = (),
    outputs: Iterable[Tensor] = (),
    *,
    op_name: bytes | str | None = "net/MatMul-op0",
    version: str | None = "2.0",
    dump_time: int = 0,
    buffers: Iterable[bytes] = (),
    spaces: Iterable[bytes] = (),
    attributes: Iterable[tuple[str, str]] = (),
    dfx: str | None = None,
    extra: bytes = b"",
) -> bytes:
    """The message `DumpData`; `extra` are further encoded fields at its end."""
    return b"".join(
        (
            bytes_field(1, version),
            number_field(2, dump_time),
            *(bytes_field(3, encode_output(tensor)) for tensor in outputs),
            *(bytes_field(4, encode_input(tensor)) for tensor in inputs),
            *(bytes_field(5, number_field(3, len(data))) for data in buffers),
            bytes_field(6, op_name),
            *(bytes_field(7, bytes_field(1, k) + bytes_field(2, v)) for k, v in attributes),
            *(bytes_field(8, number_field(3, len(data))) for data in spaces),
            bytes_field(9, dfx),
            extra,
        )
    )


def frame(message: bytes, body: bytes = b"", *, length: int | None = None) -> bytes:
    """The file around a message: its length in front, the bytes of the tensors behind."""
    return struct.pack("<Q", len(message) if length is None else length) + message + body


def dump_file(
    inputs: Sequence[Tensor] = (),
    outputs: Sequence[Tensor] = (),
    *,
    op_name: bytes | str | None = "net/MatMul-op0",
    version: str | None = "2.0",
    dump_time: int = 0,
    buffers: Sequence[bytes] = (),
    spaces: Sequence[bytes] = (),
    attributes: Sequence[tuple[str, str]] = (),
    dfx: str | None = None,
    extra: bytes = b"",
    length: int | None = None,
    trailing: bytes = b"",
) -> bytes:
    """A whole version 2.0 file."""
    message = dump_message(
        inputs,
        outputs,
        op_name=op_name,
        version=version,
        dump_time=dump_time,
        buffers=buffers,
        spaces=spaces,
        attributes=attributes,
        dfx=dfx,
        extra=extra,
    )
    written = [t.data if t.written is None else t.written for t in (*inputs, *outputs)]
    body = b"".join((*written, *buffers, *spaces, trailing))
    return frame(message, body, length=length)


# --- overflow records -----------------------------------------------------------------------------


def old_payload(
    *,
    aic: int = 0,
    dha: int = 0,
    l2: int = 0,
    task_id: int = 7,
    stream_id: int = 3,
    model_id: int = 1,
    size: int = 2048,
) -> bytes:
    """The payload without a magic; the three units carry task ids one apart."""
    payload = bytearray(max(size, 1048))
    for at, shift in ((0, 1), (128, 2), (256, 0)):
        own = (task_id + shift) & ONES_64
        info = (model_id, stream_id, own, 9, 0x1000 + shift, 0x2000 + shift)
        struct.pack_into("<6Q", payload, at, *info)
    struct.pack_into("<Q", payload, 512, dha)
    struct.pack_into("<Q", payload, 768, l2)
    struct.pack_into("<3Q", payload, 1024, 0x3000, 5, aic)
    return bytes(payload[:size])


def overflow_record(
    acc_type: int,
    fields: Sequence[int],
    *,
    version: int = 0,
    valid: int = 1,
    data_len: int | None = None,
    magic: bool = True,
) -> bytes:
    """One record of the new layout; `fields` are its u64 fields, the status words last."""
    data = struct.pack(f"<{len(fields)}Q", *fields)
    head = struct.pack("<4I", valid, acc_type, 0, len(data) if data_len is None else data_len)
    return (struct.pack("<2I", 0x5A5A5A5A, version) if magic else b"") + head + data


def opdebug_file(payload: bytes, *, announced: int | None = None) -> bytes:
    """A dump whose output 0 is the payload, padded to 2048 bytes of uint8."""
    data = payload.ljust(2048, b"\0")
    output = Tensor(data, UINT8, (len(data),), size=announced)
    return dump_file((), (output,), op_name="Node_OpDebug")


# --- statistics -----------------------------------------------------------------------------------

STATS_HEADER = (
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count"
)


def stats_csv(*rows: str, header: str = STATS_HEADER, bom: bool = False) -> bytes:
    text = "".join(f"{line}\n" for line in (header, *rows))
    return text.encode("utf-8-sig" if bom else "utf-8")
