"""Every built-in reader keeps the contract that is shipped for third parties, on all its forms.

The samples are made by the tests' builders, byte by byte, or taken from the fixtures.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import ml_dtypes
import numpy as np
import pytest

import array_builders as arrays
import builders as cann
import torch_builders as torch
from dumpscope import open_dump
from dumpscope.dtypes import dtype_named
from dumpscope.errors import CorruptDumpError
from dumpscope.layouts import plain
from dumpscope.model import DumpFile, Match
from dumpscope.plugins import load_readers
from dumpscope.readers.protocol import (
    Execution,
    FileSlice,
    MemoryData,
    Record,
    TensorData,
    TensorRecord,
)
from dumpscope.source import DumpSource
from dumpscope.testing import ReaderContract, Sample, SampleSource

ROOT = Path(__file__).resolve().parent.parent
NAME = "MatMulV2.net_MatMul-op0.5.2.1764417600000000"
OPDEBUG = "Opdebug.Node_OpDebug.9999.1.1764417600000009"
READERS = {reader.name: reader for reader in load_readers().readers}


def half(*values: float) -> bytes:
    return np.array(values, "<f2").tobytes()


def single(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def cann_samples() -> Iterator[Sample]:
    blocked = np.zeros((1, 1, 2, 2, 16), "<f2").tobytes()
    tensors = (
        cann.Tensor(half(1, 2, 3, 4, 5, 6), cann.FLOAT16, (2, 3), address=0x1000),
        cann.Tensor(single(0.5), cann.FLOAT32, ()),
        cann.Tensor(blocked, cann.FLOAT16, (1, 1, 2, 2, 16), cann.NC1HWC0, (1, 3, 2, 2)),
        cann.Tensor(b"", cann.FLOAT16, (0, 4)),
    )
    outputs = (
        cann.Tensor(np.array([1, np.inf], ml_dtypes.bfloat16).tobytes(), cann.BFLOAT16, (2,)),
        cann.Tensor(bytes([0x21, 0x43]), cann.INT4, (4,)),
        cann.Tensor(b"text", cann.STRING, (1,)),
    )
    attributes = (("transpose_a", "false"),)
    yield Sample(NAME, cann.dump_file(tensors, outputs, attributes=attributes))
    yield Sample(
        "ffts.net_a.1.2.1764417600000000.4.5.6.0",
        cann.dump_file((), (tensors[0],), buffers=(b"\0" * 16,), spaces=(b"\1" * 8,)),
    )
    yield Sample(
        "exception_info.3.7.20251129120000123",
        cann.dump_file((cann.Tensor(b"\0" * 8, cann.UNDEFINED, None),), ()),
    )
    yield Sample(
        NAME.replace("5.2.", "5."),
        cann.dump_file((), (cann.Tensor(single(1), cann.FLOAT32, (1,), inline=True),)),
    )


def opdebug_samples() -> Iterator[Sample]:
    fields = (1, 3, 7, 0, 0, 0, 0x1000, 0x2000, 4, 5, 0x110)
    yield Sample(OPDEBUG, cann.opdebug_file(cann.overflow_record(0, fields)))
    yield Sample(OPDEBUG.replace("Node_OpDebug", "node_opdebug"),
                 cann.opdebug_file(cann.old_payload(aic=32, dha=0x900)))  # fmt: skip


def overflow_json_samples() -> Iterator[Sample]:
    new = (
        b'{"magic": "0x5a5a5a5a", "version": 0, "acc_list": {"valid": 1, "acc_type": "AIC", '
        b'"rsv": 0, "data_len": 88, "data": {"model_id": 1, "stream_id": 3, "task_id": 7, '
        b'"status": 272}}}'
    )
    old = b'{"AI Core": {"model_id": 1, "stream_id": 3, "task_id": 7, "status": 32}}'
    for content in (new, old):
        yield Sample(f"{OPDEBUG}.output.0.json", content)


def stats_samples() -> Iterator[Sample]:
    rows = (
        "Input,0,8,DT_FLOAT16,ND,2x2,1,-1,0,4,0,0,0",
        "Output,0,4,DT_FLOAT,ND,-,nan,nan,nan,1,1,0,0",
        "Output,1,8,DT_BF16,ND,4,NA,NA,NA,4,NA,NA,NA",
    )
    yield Sample(f"{NAME}.csv", cann.stats_csv(*rows))
    yield Sample(f"{NAME}.csv", cann.stats_csv(*rows, bom=True))


def npy_samples() -> Iterator[Sample]:
    yield Sample("scalar.npy", arrays.npy_bytes("<f8", (), struct.pack("<d", 2.5)))
    yield Sample("big.npy", arrays.npy_bytes(">f4", (3,), struct.pack(">3f", 1, 2, 3)))
    yield Sample(f"{NAME}.output.0.npy", arrays.npy_bytes("<f2", (2, 2), half(1, 2, 3, 4)))
    yield Sample(
        f"{NAME}.input.1.ND.bfloat16.npy", arrays.npy_bytes("|V2", (2,), b"\x80\x3f\x80\x7f")
    )
    yield Sample(
        "fortran.npy",
        arrays.npy_bytes("<i4", (2, 3), np.arange(6, dtype="<i4").tobytes(), fortran_order=True),
    )
    yield Sample("empty.npy", arrays.npy_bytes("<f4", (0,), b""))
    yield Sample("version3.npy", arrays.npy_bytes("<f4", (1,), single(1), version=3))


def npz_samples() -> Iterator[Sample]:
    members = {
        "input": arrays.npy_bytes("<f4", (2,), single(1, 2)),
        "output.0": arrays.npy_bytes("<f2", (), half(1)),
    }
    for deflated in (False, True):
        yield Sample("hook.npz", arrays.npz_bytes(members, deflated=deflated))


def safetensors_samples() -> Iterator[Sample]:
    tensors = {
        "layer.input.0": ("F16", (2, 2), half(1, 2, 3, 4)),
        "layer.output.0": ("BF16", (), b"\x80\x3f"),
        "layer.output.1": ("F8_E5M2", (2,), b"\x3c\x7c"),
    }
    yield Sample("hook.safetensors", arrays.safetensors_bytes(tensors, {"format": "pt"}))


def torch_samples() -> Iterator[Sample]:
    value = torch.table(
        input=torch.tensor("0", "float16", (2, 2)),
        output=torch.tensor("1", "float32", ()),
        more=torch.series(torch.tensor("0", "float16", (2,), count=4, strides=(2,), offset=1)),
    )
    storages = {"0": half(1, 2, 3, 4), "1": single(2.5)}
    yield Sample("nan_io.pt", torch.archive(value, storages))
    yield Sample("debug_Softmax_out.pth", torch.streamed_archive(value, storages))
    counted = {"0": (4, storages["0"]), "1": (1, storages["1"])}
    yield Sample("old.pt", torch.legacy(value, counted))


def atb_samples() -> Iterator[Sample]:
    yield Sample("outtensor0.bin", arrays.atb_bytes(half(1, 2), dims=(2,)))
    yield Sample("intensor0.bin", arrays.atb_bytes(single(1), dtype=arrays.GE_FLOAT32))


def nano_samples() -> Iterator[Sample]:
    content = arrays.nano_bytes(
        [arrays.nano_input(1, 4, (2,), address=0x10)],
        [arrays.nano_output(0, 4, (), name="conv"), arrays.nano_output(2, 3, (3,), (3,))],
        half(1, 2) + single(3) + b"\1\2\3",
    )
    yield Sample("Conv2D.conv1.1.2.1764417600000000", content)


def raw_samples() -> Iterator[Sample]:
    yield Sample(f"{NAME}.output.0.2x2_.float16.ND.bin", half(1, 2, 3, 4))
    yield Sample(f"{NAME}.input.0..float32.ND.bin", single(1))
    yield Sample(f"{NAME}.space.0.bin", b"\0" * 32)


def mindspore_samples() -> Iterator[Sample]:
    header = (
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,"
        "Min Value,Avg Value,Count,Negative Zero Count,Positive Zero Count,NaN Count,"
        "Negative Inf Count,Positive Inf Count,Zero Count\n"
    )
    rows = (
        'Add,net/Add-op1,1,2,1764417600000000,input,0,16,Float32,"(2, 2)",2,-1,0.5,4,1,2,0,0,0,1\n'
        'Add,net/Add-op1,1,2,1764417600000009,output,0,4,Float32,"()",null,null,null,1,0,0,1,0,0,0\n'
    )
    yield Sample("statistic.csv", (header + rows).encode())


def order_samples() -> Iterator[Sample]:
    text = "NodeExecutionOrder-FullNameWithScope\nDefault/a-op1\nDefault/b-op2\n"
    folder = ROOT / "fixtures/cases/mindspore_tensor/dump/rank_0/execution_order"
    real = folder / "ms_execution_order_graph_0.csv"
    yield Sample("ms_execution_order_graph_0.csv", text.encode())
    yield Sample(real.name, real.read_bytes())


def param_map_samples() -> Iterator[Sample]:
    yield Sample("param_map_tp0pp1dp2.json", b'["embedding.weight", "layers.0.mlp.weight"]')
    yield Sample("param_map_tp0pp0dp0.json", b'{"7": "head.weight", "11": "head.bias"}')


def graph_samples() -> Iterator[Sample]:
    proto = """graph {
  name: "g"
  op {
    name: "data"
    type: "Data"
  }
  op {
    name: "add"
    type: "Add"
    input: "data:0"
    input: "data:-1"
    attr { key: "_datadump_original_op_names" value { list { s: "a" s: "b" } } }
  }
}
"""
    onnx = """ir_version: 8
graph {
  node {
    input: "data:0"
    output: "add:0"
    name: "add"
    op_type: "ge:Add"
  }
}
"""
    om = '{"graph": [{"name": "g", "op": [{"name": "add", "type": "Add", "input": ["data:0"]}]}]}'
    yield Sample("ge_proto_00000001_PreRunBegin.txt", proto.encode())
    yield Sample("ge_onnx_00000001_PreRunBegin.pbtxt", onnx.encode())
    yield Sample("model.json", om.encode())


def msprobe_samples() -> Iterator[Sample]:
    def leaf(**more: str) -> str:
        members = {
            "type": '"torch.Tensor"',
            "dtype": '"torch.float16"',
            "shape": "[2]",
            "Max": "1.0",
            "Min": "-1.0",
            "Mean": "0.0",
            "Norm": "1.5",
            **more,
        }
        return "{" + ", ".join(f'"{name}": {value}' for name, value in members.items()) + "}"

    def document(task: str, *entries: str) -> bytes:
        head = f'"task": "{task}", "level": "L1", "framework": "pytorch", "dump_data_dir": null'
        return f'{{{head}, "data": {{{", ".join(entries)}}}}}'.encode()

    entry = (
        f'"Functional.linear.0.forward": {{"input_args": [{leaf()}, null, '
        f'{{"type": "float", "value": 2.5}}], "input_kwargs": {{"bias": {leaf()}}}, '
        f'"output": [{leaf(Max="Infinity")}]}}'
    )
    back = f'"Functional.linear.0.backward": {{"input": [{leaf()}], "output": [{leaf(Max="NaN")}]}}'
    stacks = b'{"0": [["Functional.linear.0.forward"], ["File train.py, line 3"]]}'
    tree = b'{"Functional.linear.0.forward": "Module.fc.Linear.forward.0"}'
    beside = {"stack.json": stacks, "construct.json": tree}
    yield Sample("dump.json", document("statistics", entry, back), beside)
    stored = leaf(data_name='"Functional.linear.0.forward.output.0.pt"')
    named = f'"Functional.linear.0.forward": {{"input_args": [], "output": [{stored}]}}'
    content = torch.archive(torch.tensor("0", "float16", (2,)), {"0": half(1, np.inf)})
    tensors = {"dump_tensor_data/Functional.linear.0.forward.output.0.pt": content, **beside}
    yield Sample("dump.json", document("tensor", named), tensors)
    yield Sample("stack.json", stacks)
    yield Sample("construct.json", tree)


SAMPLES = {
    "adump": cann_samples,
    "atb": atb_samples,
    "execution_order": order_samples,
    "ge_graph": graph_samples,
    "mindspore_csv": mindspore_samples,
    "msprobe": msprobe_samples,
    "nano": nano_samples,
    "npy": npy_samples,
    "npz": npz_samples,
    "opdebug": opdebug_samples,
    "overflow_json": overflow_json_samples,
    "param_map": param_map_samples,
    "raw_bin": raw_samples,
    "safetensors": safetensors_samples,
    "stats_csv": stats_samples,
    "torch_pt": torch_samples,
}


@pytest.mark.parametrize("name", sorted(SAMPLES))
class TestBuiltInReaders(ReaderContract):
    """The tests of the contract, for each reader that dumpscope brings along."""

    head_bytes = 700
    sampled_positions = 8
    damaged_copies = 30

    @pytest.fixture(autouse=True)
    def _reader_and_samples(self, name: str) -> None:
        cls = type(self)
        cls.reader = READERS[name]
        cls.samples = tuple(SAMPLES[name]())


def test_views_over_several_blocks_are_gathered_whole(tmp_path: Path) -> None:
    values = np.arange(3 << 18, dtype="<f4").reshape(-1, 2)
    value = torch.tensor("0", "float32", (len(values),), count=values.size, strides=(2,))
    path = tmp_path / "column.pt"
    path.write_bytes(torch.archive(value, {"0": values.tobytes()}))
    (column,) = open_dump(path)
    np.testing.assert_array_equal(column.load(), values[:, 0])


def test_every_built_in_reader_is_tested() -> None:
    built_in = {p.name for p in load_readers().plugins if p.package == "dumpscope"}
    assert built_in == set(SAMPLES)


def test_scalars_are_among_the_samples() -> None:
    for name in ("adump", "npy", "npz", "safetensors", "torch_pt", "nano", "atb", "raw_bin"):
        shapes = [
            tensor.load().shape
            for sample in SAMPLES[name]()
            for record in READERS[name].read(sample.open())
            if isinstance(record, Execution)
            for tensor in record.tensors
            if tensor.data is not None and dtype_named(tensor.dtype).decodable
        ]
        assert () in shapes, name


# --- a contract that cannot be broken would prove nothing --------------------------------------


class Careless:
    """A reader of a format of its own that does one thing wrong at a time."""

    name = "careless"
    formats = "files that begin with CARELESS"
    versions = "1"
    companions: Mapping[str, str] = MappingProxyType({})
    fault = ""

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        if self.fault == "sniff":
            return Match.CONTENT if head[8] else Match.NONE
        if self.fault == "greedy":
            return Match.CONTENT
        return Match.CONTENT if head.startswith(b"CARELESS") else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        if self.fault == "raise":
            count = struct.unpack("<Q", source.head[8:16])[0]
        else:
            count = int.from_bytes(source.read(8, 8), "little")
        if self.fault == "allocate":
            bytearray(min(count, 1 << 24))
        if count > source.size - 16:
            raise CorruptDumpError("too long", path=source.file.relative, offset=8)
        data: TensorData = FileSlice(source, 16, count)
        if self.fault == "keep":
            data = MemoryData(b"".join(source.blocks(16, count)))
        if self.fault == "announce":
            data = _Lying()
        index = -1 if self.fault == "index" else 0
        yield Execution("A", "a", [TensorRecord("output", index, "uint8", plain((count,)), data)])


class _Lying:
    nbytes = 8

    def blocks(self) -> Iterator[memoryview]:
        yield memoryview(b"abc")


def broken(fault: str, size: int = 3000) -> ReaderContract:
    made = Careless()
    made.fault = fault

    class Contract(ReaderContract):
        reader = made
        samples = (Sample("x.careless", b"CARELESS" + struct.pack("<Q", size) + b"\1" * size),)
        head_bytes = 32
        damaged_copies = 20

    return Contract()


TESTS = [name for name in dir(ReaderContract) if name.startswith("test_")]


def test_a_careful_reader_passes() -> None:
    for test in TESTS:
        getattr(broken(""), test)()


@pytest.mark.parametrize(
    ("fault", "test", "said"),
    [
        ("sniff", "test_sniff_never_raises", "IndexError left the reader"),
        ("greedy", "test_claims_no_content_of_others", "it is a file of"),
        ("raise", "test_survives_being_cut_off_anywhere", "error left the reader"),
        ("allocate", "test_giant_numbers_allocate_nothing", "allocates"),
        ("keep", "test_gives_the_same_from_disk", "another result"),
        ("index", "test_reads_its_samples", "index -1"),
        ("announce", "test_reads_its_samples", "8 bytes announced, 3 given"),
    ],
)
def test_the_contract_finds_what_is_wrong(fault: str, test: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        getattr(broken(fault), test)()


def test_the_contract_finds_what_is_missing() -> None:
    contract = broken("")
    type(contract).samples = ()
    with pytest.raises(AssertionError, match="at least one whole file"):
        contract.test_has_samples()
    contract = broken("")
    contract.reader.name = "Not a name"
    with pytest.raises(AssertionError, match="a_plain_name"):
        contract.test_says_what_it_is()


def test_the_source_is_as_strict_as_a_file() -> None:
    source = SampleSource(bytes(range(200)) * 20, "x", {"data/a.bin": b"1", "data/b.bin": b"2"})
    kept = list(source.blocks(0, 4000))
    assert [len(block) for block in kept] == [1024, 1024, 1024, 928]
    assert all(set(block) == {0xA5} for block in kept)
    assert b"".join(bytes(block) for block in source.blocks(5, 3000)) == source.content[5:3005]
    assert source.list_folder("data") == ["a.bin", "b.bin"]
    assert source.sibling("data/a.bin").content == b"1"
