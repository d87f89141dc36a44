"""The reader of toy dumps keeps the contract of dumpscope: `pytest toy_contract.py`."""

import struct

from dumpscope.plugins import load_readers
from dumpscope.testing import ReaderContract, Sample


def toy_dump(name: str, *tensors: tuple[int, tuple[int, ...]]) -> bytes:
    raw = name.encode()
    content = b"TOYDUMP1" + struct.pack("<2I", len(raw), len(tensors)) + raw
    elements = b""
    for role, shape in tensors:
        content += struct.pack(f"<2I{len(shape)}Q", role, len(shape), *shape)
        count = 1
        for size in shape:
            count *= size
        elements += struct.pack(f"<{count}f", *range(count))
    return content + elements


class TestToyReader(ReaderContract):
    reader = load_readers().named("toy")
    samples = (
        Sample("first.toy", toy_dump("layer1/matmul", (0, (2, 3)), (0, ()), (1, (2, 1)))),
        Sample("empty.toy", toy_dump("layer2/add", (1, (0, 4)))),
    )
