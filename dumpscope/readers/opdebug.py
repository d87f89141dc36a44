"""Overflow records of the hardware: `Opdebug.Node_OpDebug.{task}.{stream}.{timestamp}`.

Sources: the overflow detection manual of CANN and the public code that parses these files. The
file is a CANN dump (see `adump`) whose output 0, uint8[2048], is the payload below. Task and
stream in the file name are those of the debug task; the offender's ids are in the payload.

Old payload, without a magic; all fields are little-endian u64:

=========  ====================================================================================
offset     what
=========  ====================================================================================
0          DHA atomic add: model_id, stream_id, task_id, task_type, pc_start, para_base
128        L2 atomic add: the same six
256        AI Core: the same six
512        DHA atomic add: status
768        L2 atomic add: status
1024       AI Core: kernel_code, block_idx, status
=========  ====================================================================================

New payload:

=========  ====================================================================================
offset     what
=========  ====================================================================================
0          u32 magic 0x5A5A5A5A
4          u32 version
8          u32 valid
12         u32 acc_type: 0 AIC, 1 AIV, 2 AICPU, 3 SDMA
16         u32 reserved
20         u32 data_len
24         data_len bytes of u64 fields
=========  ====================================================================================

- AIC, AIV: model_id, stream_id, task_id, task_type, context_id, thread_id, pc_start, para_base,
  core_id, block_id, status (88 bytes; in version 1 status is four words: 112 bytes)
- SDMA: model_id, stream_id, task_id, task_type, context_id, thread_id, src_addr, dst_addr,
  channel_id, status (80 bytes)
- AICPU: model_id, stream_id, task_id, task_type, context_id, cpu_id, thread_id, status (64 bytes)

A further record may follow directly, with the magic and version again or from `valid` on.
What follows the last one is padding. An id of all ones or 65535 is unknown; 0 is a real id.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import DumpFile, Match, OverflowRecord
from dumpscope.naming import is_overflow_name, parse_name
from dumpscope.readers.adump_header import is_overflow_file, open_header
from dumpscope.readers.overflow_units import KINDS, make_record, make_unit
from dumpscope.readers.protocol import Record
from dumpscope.source import DumpSource

__all__ = ["OpdebugReader"]

_CORE_FIELDS = (
    *("model_id", "stream_id", "task_id", "task_type", "context_id", "thread_id"),
    *("pc_start", "para_base", "core_id", "block_id"),
)
_FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "AIC": _CORE_FIELDS,
        "AIV": _CORE_FIELDS,
        "AICPU": (
            *("model_id", "stream_id", "task_id", "task_type", "context_id", "cpu_id"),
            "thread_id",
        ),
        "SDMA": (
            *("model_id", "stream_id", "task_id", "task_type", "context_id", "thread_id"),
            *("src_addr", "dst_addr", "channel_id"),
        ),
    }
)
"""What stands before the status, 8 bytes each."""

_FOUR_WORDS = frozenset({"AIC", "AIV"})
"""Units whose status is of four words in version 1."""

_OLD_FIELDS = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
_OLD_BYTES = 1048
_OLD_INFO = struct.Struct("<6Q")
_OLD_CORE = struct.Struct("<3Q")
_U64 = struct.Struct("<Q")

_MAGIC = 0x5A5A5A5A
_HEAD = struct.Struct("<6I")
_SHORT_HEAD = struct.Struct("<4I")
_MAX_PAYLOAD = 1 << 20


class OpdebugReader:
    """Reads overflow records."""

    name = "opdebug"
    formats = "CANN overflow records (Opdebug.Node_OpDebug)"
    versions = "without a magic; versions 0 and 1"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        if not is_overflow_file(file.name):
            return Match.NONE
        parsed = parse_name(file.name)
        if parsed is None:
            return Match.NAME
        return Match.CONTENT if is_overflow_name(parsed) and not parsed.suffix else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        payload, offset, missing = _read_payload(source)
        if not payload:
            raise _damage(
                source, offset, "expected an overflow record in output 0, found no bytes there"
            )
        if len(payload) >= 4 and int.from_bytes(payload[:4], "little") == _MAGIC:
            yield from _read_new(source, payload, offset)
        else:
            yield _read_old(source, payload, offset)
        if missing:
            yield _damage(
                source,
                source.size,
                f"expected {len(payload) + missing} bytes in output 0, found {len(payload)}",
            )


def _damage(
    source: DumpSource, offset: int, message: str, kind: type[DumpReadError] = TruncatedDumpError
) -> DumpReadError:
    return kind(message, path=source.file.relative, reader=OpdebugReader.name, offset=offset)


def _fields_of(kind: str) -> tuple[str, ...]:
    """Return the names of the fields before the status, none for an unknown kind."""
    return _FIELDS.get(kind, ())


def _read_payload(source: DumpSource) -> tuple[bytes, int, int]:
    """Return the bytes of output 0, where they begin, and how many are missing at their end."""
    dump = open_header(source, OpdebugReader.name)
    header = dump.header
    if not header.output:
        message = "expected an output 0 with an overflow record, found a header without outputs"
        raise _damage(source, 8, message, CorruptDumpError)
    if dump.inline is not None:
        start, size = dump.inline.outputs[0]
    else:
        start = dump.body + sum(entry.size for entry in header.input)
        size = header.output[0].size
    present = max(0, min(size, source.size - start))
    payload = source.read(start, min(present, _MAX_PAYLOAD)) if present else b""
    return payload, min(start, source.size), size - present


def _read_old(source: DumpSource, payload: bytes, offset: int) -> OverflowRecord:
    """Read the three units of a payload without a magic."""
    if len(payload) < _OLD_BYTES:
        message = f"expected {_OLD_BYTES} bytes of an overflow record, found {len(payload)}"
        raise _damage(source, offset + len(payload), message)
    units = []
    kernel_code, block_idx, status = _OLD_CORE.unpack_from(payload, 1024)
    core = (("kernel_code", kernel_code), ("block_idx", block_idx))
    for kind, at, word, more in (
        ("AIC", 256, status, core),
        ("DHA", 0, _U64.unpack_from(payload, 512)[0], ()),
        ("L2", 128, _U64.unpack_from(payload, 768)[0], ()),
    ):
        info = tuple(zip(_OLD_FIELDS, _OLD_INFO.unpack_from(payload, at), strict=True))
        units.append(make_unit(kind, (word,), info + more))
    return make_record(source.file, units)


def _read_new(source: DumpSource, payload: bytes, offset: int) -> Iterator[Record]:
    """Read the records of a payload with a magic."""
    head = _next_head(payload, 0, 0)
    if head is None:
        message = f"expected {_HEAD.size} bytes before an overflow record, found {len(payload)}"
        raise _damage(source, offset, message)
    while head is not None:
        names = _fields_of(head.kind)
        counts = head.status_words
        length = 8 * (len(names) + counts)
        following = None if head.data_len else _next_head(payload, head.begin, head.version)
        if following is not None:  # a head without data: an empty record
            yield make_record(source.file, (make_unit(head.kind, (0,), head.fields),))
            head = following
            continue
        if head.begin + length > len(payload):
            found = len(payload) - head.begin
            message = f"expected {length} bytes of an overflow record, found {found}"
            raise _damage(source, offset + head.begin, message)
        words = struct.unpack_from(f"<{length // 8}Q", payload, head.begin)
        status = words[len(names) :]
        fields = tuple(zip(names, words, strict=False)) + head.fields
        if not head.valid:  # nothing was recorded, whatever the memory holds
            fields += tuple((f"stale_status_{i}", word) for i, word in enumerate(status))
            status = (0,) * len(status)
        yield make_record(source.file, (make_unit(head.kind, status, fields),), head.kind in KINDS)
        head = _next_head(payload, head.begin + max(head.data_len, length), head.version)


class _RecordHead(NamedTuple):
    version: int
    valid: int
    kind: str
    data_len: int
    begin: int

    @property
    def fields(self) -> tuple[tuple[str, int], ...]:
        return (("version", self.version), ("valid", self.valid))

    @property
    def status_words(self) -> int:
        """How many words of status the record has; all of its words for an unknown kind."""
        if self.kind not in _FIELDS:
            return max(self.data_len // 8, 1)
        least = 8 * len(_FIELDS[self.kind]) + 8
        four = self.data_len >= least + 24 or (self.version >= 1 and self.data_len != least)
        return 4 if four and self.kind in _FOUR_WORDS else 1


def _next_head(payload: bytes, at: int, version: int) -> _RecordHead | None:
    """Read the head of a record.

    Behind the first one only what is plausible counts: the rest of the payload is padding.
    """
    if at + _HEAD.size <= len(payload):
        magic, own_version, valid, acc_type, _, data_len = _HEAD.unpack_from(payload, at)
        if magic == _MAGIC and (not at or _is_plausible(valid, acc_type, data_len)):
            kind = KINDS[acc_type] if acc_type < len(KINDS) else str(acc_type)
            return _RecordHead(own_version, valid, kind, data_len, at + _HEAD.size)
    if at and at + _SHORT_HEAD.size <= len(payload):
        valid, acc_type, _, data_len = _SHORT_HEAD.unpack_from(payload, at)
        if _is_plausible(valid, acc_type, data_len):
            return _RecordHead(version, valid, KINDS[acc_type], data_len, at + _SHORT_HEAD.size)
    return None


def _is_plausible(valid: int, acc_type: int, data_len: int) -> bool:
    if valid != 1 or acc_type >= len(KINDS):
        return False
    kind = KINDS[acc_type]
    least = 8 * len(_FIELDS[kind]) + 8
    return data_len == least or (kind in _FOUR_WORDS and data_len == least + 24)
