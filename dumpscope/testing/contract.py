"""What a reader keeps, whatever the file: the tests of `ReaderContract`."""

from __future__ import annotations

import os
import re
import tempfile
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

from dumpscope.dtypes import dtype_named
from dumpscope.errors import DumpReadError
from dumpscope.layouts import Geometry
from dumpscope.model import DumpFile, GraphNode, Match, OverflowRecord
from dumpscope.plugins import check_reader, load_readers
from dumpscope.readers.protocol import Execution, Reader, Record, TensorRecord
from dumpscope.source import BLOCK_BYTES, HEAD_BYTES, DumpSource, LocalSource, ReadBuffer
from dumpscope.testing.damage import (
    cut_positions,
    giant_numbers,
    hostile_names,
    mutated,
    strange_heads,
)
from dumpscope.testing.samples import Sample
from dumpscope.walk import walk

__all__ = ["ReaderContract"]

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LOADED_BYTES_MAX = 1 << 26
_Summary = list[tuple[object, ...]]


class ReaderContract:
    """Tests of one reader. Inherit it in a class whose name begins with `Test`.

    Attributes
    ----------
    reader
        The reader under test.
    samples
        Whole, undamaged files that it reads; a kilobyte or two is enough, and each shape of the
        format should be among them, scalars too.
    head_bytes
        So many bytes from the start files are cut off and patched at each of them.
    sampled_positions
        At so many places of the rest.
    damaged_copies
        How many damaged copies of each sample are read.
    memory_bytes
        What reading a sample may allocate beyond 32 times its size.
    """

    reader: ClassVar[Reader]
    samples: ClassVar[Sequence[Sample]] = ()
    head_bytes: ClassVar[int] = HEAD_BYTES
    sampled_positions: ClassVar[int] = 32
    damaged_copies: ClassVar[int] = 100
    memory_bytes: ClassVar[int] = 4 << 20

    # --- what it says of itself -----------------------------------------------------------------

    def test_says_what_it_is(self) -> None:
        reader = self.reader
        check_reader(reader.name, reader)
        assert _NAME.fullmatch(reader.name), f"name {reader.name!r}: expected a_plain_name"
        for text in (reader.formats, reader.versions):
            assert text.isprintable(), f"{text!r}: expected one printable line"
            assert text.strip() == text, f"{text!r}: expected no blanks around it"
        assert isinstance(reader.companions, Mapping), "companions: expected a mapping"
        for name, folder in reader.companions.items():
            for part in (name, folder):
                plain = part not in ("", ".", "..") and "/" not in part
                assert plain, f"companions: {part!r} is not a plain name"

    def test_has_samples(self) -> None:
        assert self.samples, "samples: expected at least one whole file"
        names = [sample.name for sample in self.samples]
        assert all(names), "samples: a file needs a name"

    # --- recognising ----------------------------------------------------------------------------

    def test_claims_its_samples_and_nobody_else_does(self) -> None:
        registry = load_readers()
        for sample in self.samples:
            source = sample.open()
            own = self.reader.sniff(source.head, source.file)
            assert own in (Match.NAME, Match.CONTENT), f"{sample.name}: not claimed ({own!r})"
            for other in registry.readers:
                if other.name == self.reader.name:
                    continue
                match = other.sniff(source.head, source.file)
                assert match < own, f"{sample.name}: {other.name} claims it too, as {match!r}"

    def test_claims_no_content_of_others(self) -> None:
        others = [r for r in load_readers().readers if r.name != self.reader.name]
        for name, head in _FOREIGN:
            file = _file(name, len(head))
            owners = [r.name for r in others if r.sniff(head, file) is Match.CONTENT]
            if owners:
                own = self.reader.sniff(head, file)
                assert own is not Match.CONTENT, f"{name}: it is a file of {owners[0]}"

    def test_sniff_never_raises(self) -> None:
        names = [sample.name for sample in self.samples]
        heads = [s.content[:cut] for s in self.samples for cut in range(0, 256, 7)]
        for head in (*strange_heads(64), *heads):
            for name in (*names[:3], "x", "", "\udcff.bin"):
                with _situation(f"sniff({head[:24]!r}…, {name!r})"):
                    match = self.reader.sniff(head, _file(name, len(head)))
                assert isinstance(match, Match), f"sniff returned {match!r}, which is no Match"

    # --- whole files ----------------------------------------------------------------------------

    def test_reads_its_samples(self) -> None:
        for sample in self.samples:
            records = self._read(sample, "whole")
            faults = [record for record in records if isinstance(record, DumpReadError)]
            assert not faults, f"{sample.name}: {faults[0]}"
            for tensor in _tensors(records):
                _check_tensor(tensor, sample.name)

    def test_gives_the_same_each_time(self) -> None:
        for sample in self.samples:
            first = _summarise(self._read(sample, "once"))
            again = _summarise(self._read(sample, "again"))
            assert first == again, f"{sample.name}: reading it again gives something else"

    def test_gives_the_same_from_disk(self) -> None:
        for sample in self.samples:
            expected = _summarise(self._read(sample, "in memory"), values=True)
            with tempfile.TemporaryDirectory() as folder:
                _put(sample, folder)
                for found in walk([os.path.join(folder, sample.name)]):
                    assert isinstance(found, DumpFile), found
                    with LocalSource(found, ReadBuffer()) as source, _situation(sample.name):
                        given = _summarise(_drain(self.reader, source), values=True)
                    assert given == expected, f"{sample.name}: another result than in memory"

    # --- damaged files --------------------------------------------------------------------------

    def test_survives_being_cut_off_anywhere(self) -> None:
        for sample in self.samples:
            content = sample.content
            for at in cut_positions(len(content), self.head_bytes, self.sampled_positions):
                self._check_damaged(sample, content[:at], f"cut off at 0x{at:x}")

    def test_giant_numbers_allocate_nothing(self) -> None:
        tracemalloc.start()
        try:
            for sample in self.samples:
                bound = self.memory_bytes + 32 * len(sample.content)
                for at, content in giant_numbers(
                    sample.content, min(self.head_bytes, 512), self.sampled_positions
                ):
                    before = tracemalloc.get_traced_memory()[0]
                    tracemalloc.reset_peak()
                    self._check_damaged(sample, content, f"a giant number at 0x{at:x}")
                    peak = tracemalloc.get_traced_memory()[1] - before
                    assert peak <= bound, (
                        f"{sample.name}: allocates {peak:,} bytes for a giant number at 0x{at:x}: "
                        "check a length against the file's size before using it"
                    )
        finally:
            tracemalloc.stop()

    def test_survives_wrong_bytes(self) -> None:
        for sample in self.samples:
            for seed in range(self.damaged_copies):
                self._check_damaged(sample, mutated(sample.content, seed), f"damage {seed}")

    def test_survives_missing_files_beside_it(self) -> None:
        for sample in self.samples:
            alone = Sample(sample.name, sample.content, {}, sample.place)
            self._check_damaged(alone, sample.content, "without the files beside it")

    def test_survives_hostile_names(self) -> None:
        for sample in self.samples:
            for name in hostile_names(sample.name):
                source = sample.open(name=name)
                with _situation(f"{sample.name} named {name!r}"):
                    self.reader.sniff(source.head, source.file)
                    _drain(self.reader, source)

    # --- how ------------------------------------------------------------------------------------

    def _read(self, sample: Sample, situation: str) -> list[Record]:
        with _situation(f"{sample.name}, {situation}"):
            return _drain(self.reader, sample.open())

    def _check_damaged(self, sample: Sample, content: bytes, situation: str) -> None:
        """Read damaged bytes to the end; nothing but `DumpReadError` may leave the reader."""
        source = sample.open(content)
        with _situation(f"{sample.name}, {situation}"):
            self.reader.sniff(source.head, source.file)
            records = _drain(self.reader, source)
            for tensor in _tensors(records):
                _check_tensor(tensor, sample.name)
        assert source.largest_read <= source.size


@contextmanager
def _situation(what: str) -> Iterator[None]:
    """Say in which situation something went wrong."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(
            f"{what}: {type(error).__name__} left the reader, where only DumpReadError may: {error}"
        ) from error


def _drain(reader: Reader, source: DumpSource) -> list[Record]:
    """Return all records, the error that ended the reading among them."""
    records: list[Record] = []
    try:
        for record in reader.read(source):
            assert isinstance(record, (Execution, OverflowRecord, GraphNode, DumpReadError)), (
                f"{reader.name} yields {record!r}, which is no record"
            )
            records.append(record)
    except DumpReadError as error:
        records.append(error)
    for record in records:
        if isinstance(record, DumpReadError):
            assert record.message, f"{reader.name}: an error without a message"
            assert record.offset is None or record.offset >= 0, f"offset {record.offset}"
    return records


def _tensors(records: Iterable[Record]) -> Iterator[TensorRecord]:
    for record in records:
        if isinstance(record, Execution):
            yield from record.tensors


def _check_tensor(tensor: TensorRecord, where: str) -> None:
    """Check one tensor, and its values where there are any."""
    what = f"{where}, {tensor.role} {tensor.index}"
    assert tensor.role in ("input", "output"), f"{what}: role {tensor.role!r}"
    assert tensor.index >= 0, f"{what}: index {tensor.index}"
    assert isinstance(tensor.dtype, str), f"{what}: dtype {tensor.dtype!r} is no name"
    assert tensor.dtype, f"{what}: dtype is empty"
    geometry = tensor.geometry
    assert isinstance(geometry, Geometry), f"{what}: geometry {geometry!r}"
    for size in (*geometry.stored_shape, *geometry.shape):
        assert isinstance(size, int), f"{what}: dimension {size!r} is no whole number"
        assert size >= 0, f"{what}: dimension {size}"
    assert tensor.missing_bytes >= 0, f"{what}: missing_bytes {tensor.missing_bytes}"
    data = tensor.data
    if data is None or data.nbytes > _LOADED_BYTES_MAX:
        return
    assert data.nbytes >= 0, f"{what}: nbytes {data.nbytes}"
    try:
        total = 0
        for block in data.blocks():
            assert block.nbytes <= BLOCK_BYTES, f"{what}: a block of {block.nbytes} bytes"
            total += block.nbytes
        assert total == data.nbytes, f"{what}: {data.nbytes} bytes announced, {total} given"
        if dtype_named(tensor.dtype).nbytes(geometry.stored_count) > _LOADED_BYTES_MAX:
            return
        array = tensor.load()
    except DumpReadError:
        return
    assert array.shape == tensor.shape, f"{what}: load() gives {array.shape}, not {tensor.shape}"
    assert not array.flags.writeable, f"{what}: load() gives an array that can be written to"


def _summarise(records: Iterable[Record], *, values: bool = False) -> _Summary:
    """Reduce records to what can be compared."""
    summary: _Summary = []
    for record in records:
        if isinstance(record, DumpReadError):
            summary.append((type(record).__name__, record.offset, record.message))
        elif isinstance(record, GraphNode):
            summary.append((record.name, record.op_type, record.inputs))
        elif isinstance(record, OverflowRecord):
            summary.append((record.units, record.timestamp))
        else:
            summary.append((record.op_type, record.op_name, record.task_id, record.timestamp))
            summary.extend(
                (t.role, t.index, t.dtype, t.shape, t.name, t.unchecked, t.stats,
                 _values(t) if values else None)
                for t in record.tensors
            )  # fmt: skip
    return summary


def _values(tensor: TensorRecord) -> bytes | None:
    try:
        return tensor.load().tobytes()
    except DumpReadError:
        return None


def _put(sample: Sample, folder: str) -> None:
    for name, content in {**sample.beside, sample.name: sample.content}.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as target:
            target.write(content)


def _file(name: str, size: int) -> DumpFile:
    return DumpFile(
        path=f"/dump/{name}", relative=name, name=name, size=size, mtime_ns=0, ctime_ns=0, inode=0
    )


_FOREIGN = (
    ("x.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'shape': (1,), }"),
    ("x.npz", b"PK\x03\x04" + bytes(22) + b"\x05\x00\x00\x00a.npy" + bytes(64)),
    ("x.pt", b"PK\x03\x04" + bytes(22) + b"\x08\x00\x00\x00data.pkl" + bytes(64)),
    ("x.safetensors", b'\x46\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   '
     + bytes(64)),
    ("dump.json", b'{"task": "statistics", "level": "L1", "dump_data_dir": null, "data": {}}'),
    ("statistic.csv", b"Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type\n"),
    ("x.csv", b"Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value\n"),
    ("x.bin", b"$Version=1.0\n$Object.Count=1\n"),
)  # fmt: skip
"""Beginnings of files of other formats."""
