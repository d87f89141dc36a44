"""Lines of a file, however the blocks cut them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.readers.text_lines import TextLine, stream_lines
from memory_source import MemorySource


class Pieces(MemorySource):
    """Hands out its bytes in blocks of one size."""

    def __init__(self, content: bytes, block: int) -> None:
        super().__init__(content, "x.csv")
        self.block = block

    def blocks(self, offset: int, length: int) -> Iterator[memoryview]:
        for start in range(offset, offset + length, self.block):
            yield memoryview(self.content[start : min(start + self.block, offset + length)])


@given(st.lists(st.sampled_from([b"", b"a", b"bc", b"\xc3\xa9", b"defghij"])), st.integers(1, 9))
def test_lines_do_not_depend_on_the_blocks(parts: list[bytes], block: int) -> None:
    content = b"\n".join(parts)
    expected = []
    offset = 0
    for number, part in enumerate(parts):
        if part:
            expected.append(TextLine(offset, part.decode(), number < len(parts) - 1, False))
        offset += len(part) + 1
    assert list(stream_lines(Pieces(content, block))) == expected


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_long_lines_are_cut_and_their_length_counts(block: int) -> None:
    content = b"abcdefghij\r\nxy\r\n" + b"z" * 12
    lines = list(stream_lines(Pieces(content, block), limit_bytes=8))
    assert lines == [
        TextLine(0, "abcdefgh", True, True),
        TextLine(12, "xy", True, False),
        TextLine(16, "zzzzzzzz", False, True),
    ]


def test_a_mark_at_the_start_is_no_text_and_other_bytes_are_kept() -> None:
    lines = list(stream_lines(Pieces(b"\xef\xbb\xbfa\n\xff\n", 4)))
    assert [line.text for line in lines] == ["a", "\udcff"]
