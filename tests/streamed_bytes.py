"""The bytes of a tensor in blocks of a chosen size, as a file would give them."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK_BYTES = 1 << 20


class StreamedBytes:
    """`blocks_read` counts how many blocks were asked for, over all passes."""

    def __init__(self, content: bytes, block_bytes: int = BLOCK_BYTES) -> None:
        self._content = memoryview(content)
        self._block_bytes = block_bytes
        self.nbytes = len(content)
        self.blocks_read = 0

    def blocks(self) -> Iterator[memoryview]:
        for start in range(0, self.nbytes, self._block_bytes):
            self.blocks_read += 1
            yield self._content[start : start + self._block_bytes]
