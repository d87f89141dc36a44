"""Write array files, ATB and nano dumps byte by byte, as the tests' own second opinion.

Nothing of dumpscope is imported here. NumPy arrays give the elements only; the headers are
written from the public format descriptions.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

GE_FLOAT32, GE_FLOAT16, GE_INT8, GE_INT32, GE_BFLOAT16, GE_UNDEFINED, GE_INT4 = (
    0,
    1,
    2,
    3,
    27,
    28,
    29,
)
FORMAT_ND, FORMAT_NC1HWC0, FORMAT_FRACTAL_NZ = 2, 3, 29


def npy_bytes(
    descr: str,
    shape: Sequence[int],
    payload: bytes,
    *,
    fortran_order: bool = False,
    version: int = 1,
) -> bytes:
    """An .npy file with this type string, whatever NumPy thinks of it."""
    dims = "".join(f"{dim}, " for dim in shape)
    if len(shape) > 1:
        dims = dims.removesuffix(", ")
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran_order}, 'shape': ({dims.strip()}), }}"
    return npy_with_text(text, payload, version=version)


def npy_with_text(text: str, payload: bytes = b"", *, version: int = 1) -> bytes:
    """An .npy file whose header is this text, padded as NumPy pads it."""
    size_format = "<H" if version == 1 else "<I"
    start = 8 + struct.calcsize(size_format)
    raw = text.encode("latin-1")
    raw += b" " * (-(start + len(raw) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(size_format, len(raw)) + raw + payload


def npz_bytes(members: Mapping[str, bytes], *, deflated: bool = False) -> bytes:
    """An .npz archive of these .npy files."""
    out = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", method) as archive:
        for key, content in members.items():
            info = zipfile.ZipInfo(f"{key}.npy", date_time=(2025, 1, 1, 0, 0, 0))
            info.compress_type = method
            archive.writestr(info, content)
    return out.getvalue()


def safetensors_bytes(
    tensors: Mapping[str, tuple[str, Sequence[int], bytes]],
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """A .safetensors file; each tensor is its type word, its shape and its bytes."""
    header: dict[str, object] = {}
    if metadata is not None:
        header["__metadata__"] = dict(metadata)
    body = b""
    for key, (dtype, shape, content) in tensors.items():
        header[key] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(body), len(body) + len(content)],
        }
        body += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def atb_bytes(
    payload: bytes,
    *,
    dtype: int = GE_FLOAT16,
    layout: int = FORMAT_ND,
    dims: Sequence[int] = (),
    saved_in: str | None = None,
    place: tuple[int, int] | None = None,
) -> bytes:
    """An ATB tensor file."""
    lines = [
        "$Version=1.0",
        f"$Object.Count={int(saved_in is None)}",
        f"$Object.Length={len(payload)}",
        f"format={layout}",
        f"dtype={dtype}",
        f"dims={','.join(map(str, dims))}",
    ]
    if saved_in is not None:
        lines.append(f"data={saved_in}")
    else:
        offset, length = place or (0, len(payload))
        lines.append(f"$Object.data={offset},{length}")
    return "".join(f"{line}\n" for line in [*lines, "$End=1"]).encode() + payload


def nano_bytes(
    inputs: Sequence[bytes], outputs: Sequence[bytes], payload: bytes, *, length: int | None = None
) -> bytes:
    """A nano dump of entries made by `nano_input` and `nano_output`."""
    header = struct.pack("<2I", 0x5A5A5A5A, 1)
    for tag, entries in ((4, inputs), (5, outputs)):
        if entries:
            header += tlv(tag, struct.pack("<I", len(entries)) + b"".join(entries))
    return struct.pack("<Q", len(header) if length is None else length) + header + payload


def nano_input(
    dtype: int,
    size: int,
    shape: Sequence[int] | None = None,
    original_shape: Sequence[int] | None = None,
    *,
    layout: int = FORMAT_ND,
    address: int = 0,
) -> bytes:
    """One input of a nano dump."""
    fields = _shape_fields(shape, original_shape)
    return (
        struct.pack("<3i", dtype, layout, 0)
        + struct.pack("<3QI", address, 0, size, len(fields))
        + fields
    )


def nano_output(
    dtype: int,
    size: int,
    shape: Sequence[int] | None = None,
    original_shape: Sequence[int] | None = None,
    *,
    layout: int = FORMAT_ND,
    original_format: int = FORMAT_ND,
    name: str | None = None,
) -> bytes:
    """One output of a nano dump."""
    fields = _shape_fields(shape, original_shape)
    if name is not None:
        fields += tlv(2, name.encode())
    return (
        struct.pack("<6i", dtype, layout, 0, 0, dtype, original_format)
        + struct.pack("<3QI", 0, 0, size, len(fields))
        + fields
    )


def tlv(tag: int, value: bytes) -> bytes:
    """Tag, length, value."""
    return struct.pack("<2I", tag, len(value)) + value


def _shape_fields(shape: Sequence[int] | None, original_shape: Sequence[int] | None) -> bytes:
    fields = b""
    for tag, dims in ((0, shape), (1, original_shape)):
        if dims is not None:
            fields += tlv(tag, struct.pack(f"<{len(dims)}Q", *dims))
    return fields


def bytes_of(array: npt.NDArray[np.generic]) -> bytes:
    """The elements in C order."""
    return np.ascontiguousarray(array).tobytes()
