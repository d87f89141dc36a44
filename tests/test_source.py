"""A file is read as it is now, whatever the walk saw, and every byte of it comes once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dumpscope import source as source_module
from dumpscope.errors import DumpReadError, TruncatedDumpError
from dumpscope.model import DumpFile
from dumpscope.source import BLOCK_BYTES, HEAD_BYTES, LocalSource, ReadBuffer


def seen(path: Path, size: int | None = None) -> DumpFile:
    """What the walk says of a file, with another size where it has changed since."""
    status = path.stat()
    return DumpFile(
        str(path), path.name, path.name, status.st_size if size is None else size, 1, 2, 3
    )


def written(tmp_path: Path, size: int) -> tuple[Path, bytes]:
    content = (b"0123456789abcdefghijklmnopqrstuvwxyz" * (size // 36 + 1))[:size]
    path = tmp_path / "file"
    path.write_bytes(content)
    return path, content


@pytest.mark.parametrize("size", [0, 1, 5000, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1])
def test_all_bytes_come_in_blocks(tmp_path: Path, size: int) -> None:
    path, content = written(tmp_path, size)
    with LocalSource(seen(path), ReadBuffer()) as source:
        assert source.size == size
        assert source.head == content[:HEAD_BYTES]
        for offset in (0, 3, 16):
            if offset <= size:
                blocks = [bytes(block) for block in source.blocks(offset, size - offset)]
                assert b"".join(blocks) == content[offset:]
                assert all(len(block) <= BLOCK_BYTES for block in blocks)


@pytest.mark.parametrize("has_preadv", [True, False])
def test_parts_of_a_large_file_come_in_any_order(
    tmp_path: Path, has_preadv: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "_HAS_PREADV", has_preadv)
    path, content = written(tmp_path, 3 * BLOCK_BYTES + 77)
    with LocalSource(seen(path), ReadBuffer()) as source:
        for offset, length in ((2_000_001, 1_000_000), (10, 20), (70_000, 5), (65_530, 1_300_000)):
            blocks = [bytes(block) for block in source.blocks(offset, length)]
            assert b"".join(blocks) == content[offset : offset + length]
            assert source.read(offset, length) == content[offset : offset + length]


@pytest.mark.parametrize("before", [0, 40, 200, 1 << 22])
def test_a_file_that_changed_since_the_walk_is_read_as_it_is(tmp_path: Path, before: int) -> None:
    path, content = written(tmp_path, 100)
    with LocalSource(seen(path, before), ReadBuffer()) as source:
        assert source.size == 100
        assert source.head == content
        assert b"".join(map(bytes, source.blocks(0, 100))) == content
        with pytest.raises(TruncatedDumpError):
            source.read(90, 11)
        with pytest.raises(TruncatedDumpError):
            list(source.blocks(90, 11))


def test_what_is_no_file_any_more_is_refused_at_once(tmp_path: Path) -> None:
    path, _ = written(tmp_path, 100)
    file = seen(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DumpReadError, match="no regular file any more"):
        LocalSource(file, ReadBuffer())
    path.unlink()
    path.mkdir()
    with pytest.raises(DumpReadError, match="no regular file any more"):
        LocalSource(file, ReadBuffer())


def test_a_file_that_shrinks_while_it_is_read_says_so(tmp_path: Path) -> None:
    path, _ = written(tmp_path, 4 * BLOCK_BYTES)
    with LocalSource(seen(path), ReadBuffer()) as source:
        blocks = source.blocks(0, source.size)
        assert len(next(blocks)) == BLOCK_BYTES
        os.truncate(path, BLOCK_BYTES + 5)
        with pytest.raises(TruncatedDumpError, match="shrank while it was read"):
            list(blocks)
