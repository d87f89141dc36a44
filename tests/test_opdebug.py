from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import (
    ONES_64,
    UINT8,
    Tensor,
    dump_file,
    dump_message,
    old_payload,
    opdebug_file,
    overflow_record,
)
from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.model import Match, OverflowRecord, Place
from dumpscope.readers.adump import AdumpReader
from dumpscope.readers.opdebug import OpdebugReader
from dumpscope.readers.overflow_json import OverflowJsonReader
from memory_source import MemorySource, read_all

READER = OpdebugReader()
JSON_READER = OverflowJsonReader()
NAME = "Opdebug.Node_OpDebug.9999.1.1764417600003150"
JSON_NAME = f"{NAME}.output.0.json"
PLACE = Place(run="20251129120000", step=0, device_id=3)

# model, stream, task, task type, context, thread, pc, para base, core, block
CORE = (1, 3, 24, 9, 0, 2, 0x1000, 0x2000, 5, 6)
AICPU = (1, 3, 24, 9, 4, 77, 8)
SDMA = (1, 3, 24, 9, 4, 8, 0xAAAA, 0xBBBB, 2)


def read(payload: bytes, name: str = NAME) -> list[OverflowRecord]:
    """The records of an undamaged file."""
    return kept(MemorySource(opdebug_file(payload), name, place=PLACE))


def kept(source: MemorySource) -> list[OverflowRecord]:
    records = read_all(READER, source)
    assert all(isinstance(record, OverflowRecord) for record in records), records
    return [record for record in records if isinstance(record, OverflowRecord)]


def read_json(document: object) -> list[OverflowRecord]:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    records = read_all(JSON_READER, MemorySource(content, JSON_NAME, place=PLACE))
    assert all(isinstance(record, OverflowRecord) for record in records), records
    return [record for record in records if isinstance(record, OverflowRecord)]


# --- the old layout -------------------------------------------------------------------------------


def test_old_layout_has_three_units_with_their_own_ids() -> None:
    (record,) = read(old_payload(aic=0x110, dha=0x900))
    assert [unit.kind for unit in record.units] == ["AIC", "DHA", "L2"]
    aic, dha, l2 = record.units
    assert (aic.status, dha.status, l2.status) == ((0x110,), (0x900,), (0,))
    assert (aic.model_id, aic.stream_id, aic.task_id) == (1, 3, 7)
    assert dha.task_id == 8
    assert aic.context_id is None
    assert aic.thread_id is None
    assert dict(aic.fields)["pc_start"] == 0x1000
    assert dict(aic.fields)["kernel_code"] == 0x3000
    assert dict(aic.fields)["block_idx"] == 5
    assert not record.empty
    assert record.known_kind


def test_unit_that_overflowed_comes_first() -> None:
    (record,) = read(old_payload(l2=0x10000))
    assert [unit.kind for unit in record.units] == ["L2", "AIC", "DHA"]
    assert record.units[0].status == (0x10000,)


def test_record_knows_its_file() -> None:
    (record,) = read(old_payload(aic=16))
    assert record.file == f"0/{NAME}"
    assert record.place == PLACE
    assert record.timestamp == 1764417600003150
    assert record.start_ns == 1764417600003150000


def test_all_words_zero_is_an_empty_record() -> None:
    (record,) = read(bytes(2048))
    assert record.empty
    assert record.units[0].kind == "AIC"


@pytest.mark.parametrize("unknown", [0xFFFF, 0xFFFFFFFF, ONES_64])
def test_ids_of_ones_are_unknown(unknown: int) -> None:
    (record,) = read(old_payload(aic=8, task_id=unknown, stream_id=unknown, model_id=unknown))
    unit = record.units[0]
    assert (unit.task_id, unit.stream_id, unit.model_id) == (None, None, None)
    assert dict(unit.fields)["task_id"] == unknown


# --- the new layout -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acc_type", "kind", "fields"),
    [(0, "AIC", CORE), (1, "AIV", CORE), (2, "AICPU", AICPU), (3, "SDMA", SDMA)],
)
def test_new_layout_of_every_unit(acc_type: int, kind: str, fields: tuple[int, ...]) -> None:
    (record,) = read(overflow_record(acc_type, (*fields, 0x21)))
    (unit,) = record.units
    assert (unit.kind, unit.status) == (kind, (0x21,))
    assert (unit.model_id, unit.stream_id, unit.task_id) == (1, 3, 24)
    expected = {"AIC": (0, 2), "AIV": (0, 2), "AICPU": (4, 8), "SDMA": (4, 8)}[kind]
    assert (unit.context_id, unit.thread_id) == expected
    assert record.known_kind
    assert not record.empty


def test_named_fields_of_the_units() -> None:
    named = dict(read(overflow_record(0, (*CORE, 1)))[0].units[0].fields)
    assert (named["pc_start"], named["para_base"]) == (0x1000, 0x2000)
    assert (named["core_id"], named["block_id"]) == (5, 6)
    assert dict(read(overflow_record(2, (*AICPU, 1)))[0].units[0].fields)["cpu_id"] == 77
    named = dict(read(overflow_record(3, (*SDMA, 1)))[0].units[0].fields)
    assert (named["src_addr"], named["dst_addr"], named["channel_id"]) == (0xAAAA, 0xBBBB, 2)


@pytest.mark.parametrize("acc_type", [0, 1])
def test_version_1_has_four_words_of_status(acc_type: int) -> None:
    (record,) = read(overflow_record(acc_type, (*CORE, 0x20, 0, 0, 0x1), version=1))
    assert record.units[0].status == (0x20, 0, 0, 1)


def test_version_1_of_one_word_is_told_by_its_length() -> None:
    payload = overflow_record(0, (*CORE, 0x20), version=1) + b"\xee" * 64
    assert read(payload)[0].units[0].status == (0x20,)


def test_length_that_was_not_filled_in() -> None:
    payload = overflow_record(0, (*CORE, 0x20, 0, 0, 7), version=1, data_len=0)
    assert [record.units[0].status for record in read(payload)] == [(0x20, 0, 0, 7)]
    payload = overflow_record(2, (*AICPU, 0x20), data_len=0)
    assert [record.units[0].status for record in read(payload)] == [(0x20,)]


@pytest.mark.parametrize("magic", [True, False])
def test_several_records_follow_each_other(magic: bool) -> None:
    payload = b"".join(
        (
            overflow_record(0, (*CORE, 0x100)),
            overflow_record(3, (*SDMA, 4), magic=magic),
            overflow_record(2, (*AICPU, 2), magic=magic),
        )
    )
    records = read(payload)
    assert [record.units[0].kind for record in records] == ["AIC", "SDMA", "AICPU"]
    assert [record.units[0].status for record in records] == [(0x100,), (4,), (2,)]
    assert all(len(record.units) == 1 for record in records)


def test_four_words_then_another_record() -> None:
    payload = overflow_record(1, (*CORE, 0, 0, 0, 8), version=1)
    payload += overflow_record(1, (*CORE, 5, 0, 0, 0), version=1, magic=False)
    assert [record.units[0].status for record in read(payload)] == [(0, 0, 0, 8), (5, 0, 0, 0)]


def test_empty_record_does_not_stop_the_reading() -> None:
    payload = overflow_record(0, (*CORE, 0)) + overflow_record(0, (*CORE, 0x20))
    assert [record.empty for record in read(payload)] == [True, False]


def test_head_without_data_is_an_empty_record() -> None:
    payload = overflow_record(0, (), valid=0) + overflow_record(0, (*CORE, 0x20))
    records = read(payload)
    assert [record.empty for record in records] == [True, False]
    assert records[1].units[0].task_id == 24


def test_record_that_is_not_valid_is_empty_whatever_the_memory_holds() -> None:
    (record,) = read(overflow_record(0, (*CORE, 0x20), valid=0))
    assert record.empty
    assert dict(record.units[0].fields)["stale_status_0"] == 0x20


@pytest.mark.parametrize(
    "padding",
    [
        b"\xff" * 200,
        b"\xcd" * 200,
        struct.pack("<4I", 1, 9, 0, 88) + bytes(100),
        struct.pack("<4I", 1, 0, 0, 80) + bytes(100),
        struct.pack("<4I", 2, 0, 0, 88) + bytes(100),
        struct.pack("<6I", 0x5A5A5A5A, 0, 0, 0, 0, 88) + bytes(100),
    ],
)
def test_padding_is_no_record(padding: bytes) -> None:
    assert len(read(overflow_record(0, (*CORE, 0x20)) + padding)) == 1


def test_unknown_unit_is_kept_raw() -> None:
    payload = overflow_record(7, (11, 0, 12)) + overflow_record(0, (*CORE, 0x20))
    strange, known = read(payload)
    assert not strange.known_kind
    assert strange.units[0].kind == "7"
    assert strange.units[0].status == (11, 0, 12)
    assert strange.units[0].task_id is None
    assert known.known_kind


def test_version_1_file_around_the_record() -> None:
    payload = old_payload(aic=0x20)
    content = dump_message((), (Tensor(payload, UINT8, (2048,), inline=True),), version="1.0")
    (record,) = kept(MemorySource(content, NAME))
    assert record.units[0].status == (0x20,)


def test_record_stands_behind_the_inputs() -> None:
    payload = old_payload(aic=0x20)
    inputs = (Tensor(b"\xff" * 100, UINT8, (100,)),)
    content = dump_file(inputs, (Tensor(payload, UINT8, (2048,)),))
    (record,) = kept(MemorySource(content, NAME))
    assert record.units[0].status == (0x20,)
    assert record.units[0].task_id == 7


# --- damage ---------------------------------------------------------------------------------------


def test_old_record_that_is_cut_is_damage() -> None:
    content = opdebug_file(old_payload(aic=0x20))
    for length in range(len(content)):
        records = read_all(READER, MemorySource(content[:length], NAME))
        assert isinstance(records[-1], TruncatedDumpError), length
        assert records[-1].path == f"0/{NAME}"
        if len(records) == 2:
            assert isinstance(records[0], OverflowRecord)
            assert records[0].units[0].status == (0x20,)


def test_new_record_that_is_cut_is_damage() -> None:
    content = opdebug_file(overflow_record(0, (*CORE, 0x20)))
    whole = content.index(struct.pack("<I", 0x5A5A5A5A)) + 24 + 88
    for length in range(len(content)):
        records = read_all(READER, MemorySource(content[:length], NAME))
        assert isinstance(records[-1], TruncatedDumpError), length
        assert len(records) == (2 if length >= whole else 1)


def test_file_without_an_output_is_damage() -> None:
    (error,) = read_all(READER, MemorySource(dump_file(), NAME))
    assert isinstance(error, CorruptDumpError)
    content = dump_file((), (Tensor(b"", UINT8, (0,)),))
    (error,) = read_all(READER, MemorySource(content, NAME))
    assert isinstance(error, TruncatedDumpError)


def test_length_beyond_the_payload_is_damage() -> None:
    payload = overflow_record(9, (1, 2), data_len=0xFFFFFFF8)
    (error,) = read_all(READER, MemorySource(opdebug_file(payload), NAME))
    assert isinstance(error, TruncatedDumpError)
    # Of a known unit the fields are there all the same.
    (record,) = read(overflow_record(2, (*AICPU, 2), data_len=0xFFFFFFF8))
    assert record.units[0].status == (2,)


def test_giant_size_is_not_allocated() -> None:
    source = MemorySource(opdebug_file(old_payload(aic=1), announced=1 << 63), NAME)
    records = read_all(READER, source)
    assert isinstance(records[0], OverflowRecord)
    assert isinstance(records[1], TruncatedDumpError)
    assert source.largest_read <= len(source.content)


@given(st.binary(max_size=2048))
def test_any_payload_is_read_or_refused(payload: bytes) -> None:
    for content in (payload, struct.pack("<I", 0x5A5A5A5A) + payload):
        for record in read_all(READER, MemorySource(opdebug_file(content), NAME)):
            assert isinstance(record, OverflowRecord | DumpReadError)


# --- sniffing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        "OpDebug.Node_Opdebug.9999.1.1764417600003150",
        "OPDEBUG.NODE_OPDEBUG.9999.1764417600003150",
    ],
)
def test_names_in_any_letter_case(name: str) -> None:
    source = MemorySource(opdebug_file(b""), name)
    assert READER.sniff(source.head, source.file) is Match.CONTENT
    assert AdumpReader().sniff(source.head, source.file) is Match.NONE
    assert JSON_READER.sniff(source.head, source.file) is Match.NONE


@pytest.mark.parametrize(
    "name", ["MatMulV2.net_MatMul.5.2.1764417600000000", "Opdebugger.net.5.2.1764417600000000"]
)
def test_other_operators_are_not_claimed(name: str) -> None:
    source = MemorySource(opdebug_file(b""), name)
    assert READER.sniff(source.head, source.file) is Match.NONE
    assert AdumpReader().sniff(source.head, source.file) is Match.CONTENT


def test_parsed_records_belong_to_their_reader_alone() -> None:
    source = MemorySource(b'{"AI Core": {}}', JSON_NAME)
    assert JSON_READER.sniff(source.head, source.file) is Match.CONTENT
    assert READER.sniff(source.head, source.file) is Match.NONE
    assert AdumpReader().sniff(source.head, source.file) is Match.NONE
    source = MemorySource(b"cut off", JSON_NAME)
    assert JSON_READER.sniff(source.head, source.file) is Match.NAME


# --- the parsed form ------------------------------------------------------------------------------


def test_parsed_old_form() -> None:
    (record,) = read_json(
        {
            "DHA Atomic Add": {"model_id": 1, "stream_id": 3, "task_id": 8, "status": 0},
            "L2 Atomic Add": {"model_id": 1, "stream_id": 3, "task_id": 9, "status": 0},
            "AI Core": {
                "model_id": 1,
                "stream_id": 3,
                "task_id": 7,
                "task_type": 0,
                "pc_start": "0x1000",
                "para_base": "0x2000",
                "kernel_code": "0x3000",
                "block_idx": 5,
                "status": 272,
            },
        }
    )
    assert [unit.kind for unit in record.units] == ["AIC", "DHA", "L2"]
    unit = record.units[0]
    assert (unit.status, unit.task_id, unit.stream_id) == ((272,), 7, 3)
    assert dict(unit.fields)["pc_start"] == 0x1000
    assert record.timestamp == 1764417600003150
    assert record.place == PLACE


def test_parsed_new_form_with_four_words() -> None:
    data = {
        "model_id": 4294967295,
        "stream_id": 3,
        "task_id": 24,
        "context_id": 65535,
        "thread_id": 0,
        "status": [32, 0, 0, 1],
    }
    document = {
        "magic": 0x5A5A5A5A,
        "version": 1,
        "acc_list": {"acc_type": "AIC", "data_len": 112, "data": data},
    }
    (record,) = read_json(document)
    (unit,) = record.units
    assert (unit.kind, unit.status) == ("AIC", (32, 0, 0, 1))
    assert (unit.model_id, unit.task_id, unit.context_id, unit.thread_id) == (None, 24, None, 0)
    assert record.known_kind


def test_parsed_list_of_records() -> None:
    def entry(kind: str | int, status: int | str) -> dict[str, object]:
        return {"acc_type": kind, "data": {"task_id": 1, "stream_id": 2, "status": status}}

    document = {
        "magic": "0x5a5a5a5a",
        "acc_list": [entry("AIV", 1), entry(3, "0x10"), entry(12, 5), entry("odd", 0)],
    }
    records = read_json(document)
    assert [record.units[0].kind for record in records] == ["AIV", "SDMA", "12", "ODD"]
    assert [record.units[0].status for record in records] == [(1,), (16,), (5,), (0,)]
    assert [record.known_kind for record in records] == [True, True, False, False]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"AI Core": 5}',
        b'{"AI Core": {"status": "much"}}',
        b'{"AI Core": {"status": []}}',
        b'{"acc_list": 3}',
        b'{"magic": 1515870810}',
        b'{"acc_list": [{"acc_type": "AIC"}]}',
        b"[" * 100000,
        b'{"AI Core": {"status": ' + b"9" * 10000 + b"}}",
        b"\xff\xfe\x00",
    ],
)
def test_damaged_parsed_records(content: bytes) -> None:
    records = read_all(JSON_READER, MemorySource(content, JSON_NAME))
    assert [type(record) for record in records] == [CorruptDumpError]


def test_giant_parsed_record_is_not_loaded() -> None:
    source = MemorySource(b"{}", JSON_NAME, size=1 << 40)
    (error,) = read_all(JSON_READER, source)
    assert isinstance(error, CorruptDumpError)
    assert source.largest_read == 0
