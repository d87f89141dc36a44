"""Scans built by hand, for the tests of words and reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dumpscope.model import (
    Counts,
    Finding,
    Mode,
    OpRecord,
    OverflowFinding,
    OverflowRecord,
    OverflowUnit,
    Place,
    ReadFailure,
    Reason,
    Scan,
    TensorStats,
    TensorSummary,
    Verdict,
)

__all__ = [
    "HOSTILE_NAMES",
    "clean_scan",
    "incomplete_scan",
    "large_scan",
    "make_finding",
    "named_scan",
    "overflow_scan",
]

PLACE = Place(run="20251129120000", step=0, device_id=0, model_name="ge_default", model_id=11)
FOLDER = "dump/20251129120000/0/ge_default/11/0"

HOSTILE_NAMES = (
    '=HYPERLINK("http://evil.example","open")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1+1",
    "#REF!",
    "esc\x1b[31mred\x1b[0m\x07",
    "bidi\u202egnp.exe",
    "raw\udcff\udc80bytes",
    "null\x00byte",
    "line\nbreak\r\nand\ttab",
    'quote"comma,semicolon;',
    "[bold red]markup[/bold red]",
    "</script><b>html</b>",
    "_x0041_escape",
    "matmul_x1024_y",
    "算子/注意力/乘法",
    "emoji \U0001f600 and \ufffe",
    "{braces} %s %(x)s $(id) `id`",
    "'quoted",
    "",
)


def tensor(role: str, index: int, shape: tuple[int, ...], **stats: Any) -> TensorSummary:
    count = 1
    for size in shape:
        count *= size
    return TensorSummary(
        role="input" if role == "input" else "output",
        index=index,
        dtype="float16",
        layout="ND",
        shape=shape,
        size_bytes=2 * count,
        stats=TensorStats(count=count, **stats),
    )


def make_finding(rank: int, verdict: Verdict = Verdict.PROPAGATED, name: str = "") -> Finding:
    """Return a finding with an input and a deciding output of 2 x 4 elements."""
    op = OpRecord(
        op_type="Mul",
        op_name=name or f"network/layer_{rank}/Mul",
        tensors=(
            tensor("input", 0, (2, 4), min=-1.5, max=2.25),
            tensor("output", 0, (2, 4), nan=8, first_bad=(0, 0), bad_box=((0, 1), (0, 3))),
        ),
        task_id=rank,
        stream_id=2,
        timestamp=1764417600003145 + rank,
        step=0,
        device=0,
        reader="adump",
        file=f"{FOLDER}/Mul.op{rank}",
        place=PLACE,
        op_id=100 + rank,
    )
    return Finding(
        op=op,
        verdict=verdict,
        reason=Reason(
            "propagated",
            {
                "role": "output",
                "index": 0,
                "dtype": "float16",
                "nan": 8,
                "total": 8,
                "producer": "bmm",
                "producer_type": "BatchMatMulV2",
                "evidence": "bytes",
            },
        ),
        evidence=("bytes",),
        rank=rank,
        deciding=1,
        caused_by=101,
    )


def overflow_scan() -> Scan:
    """Return a scan with an origin that hardware confirms, and one operator after it."""
    origin_op = OpRecord(
        op_type="BatchMatMulV2",
        op_name="network_layers_1_attn_BatchMatMulV2-op0",
        tensors=(
            tensor("input", 0, (2, 32, 16), min=-412.5, max=400.0),
            tensor("input", 1, (2, 16, 32), min=-300.0, max=310.25),
            tensor(
                "output",
                0,
                (2, 32, 32),
                posinf=513,
                near_limit=7,
                subnormal=1,
                zero=2,
                min=-60000.0,
                max=65312.0,
                mean=12.5,
                std=0.1,
                rms=1e-7,
                l2=3.5e38,
                first_bad=(0, 1, 5),
                bad_box=((0, 1), (1, 31), (0, 31)),
            ),
        ),
        task_id=24,
        stream_id=2,
        timestamp=1764417600003145,
        step=0,
        device=3,
        reader="adump",
        file=f"{FOLDER}/BatchMatMulV2.network_layers_1_attn_BatchMatMulV2-op0.24.2.1764417600003145",
        stack=("model.py:12 in forward", "train.py:80 in step"),
        place=replace(PLACE, device_id=3, host="node-1"),
        op_id=101,
    )
    origin = Finding(
        op=origin_op,
        verdict=Verdict.ORIGIN,
        reason=Reason(
            "origin_confirmed",
            {
                "role": "output",
                "index": 0,
                "dtype": "float16",
                "nan": 0,
                "posinf": 513,
                "neginf": 0,
                "total": 2048,
                "inputs": 2,
                "max_input": 412.5,
                "limit": 65504.0,
                "hardware": "0x20 floating-point overflow",
                "step": 0,
                "device": 3,
            },
        ),
        evidence=("own_inputs", "status"),
        rank=1,
        deciding=2,
        overflow=OverflowFinding(
            kind="AIC",
            status=(0x20,),
            bits=("0x20 floating-point overflow",),
            confirmed=True,
            file=f"{FOLDER}/Opdebug.Node_OpDebug.1.1.1",
            others=(OverflowUnit("DHA", (0x900,), task_id=24, stream_id=2),),
        ),
    )
    after = make_finding(2)
    mask = Finding(
        op=replace(
            origin_op,
            op_type="MaskedFill",
            op_name="mask",
            tensors=(tensor("output", 0, (4,), neginf=4),),
            stack=(),
            op_id=150,
        ),
        verdict=Verdict.EXPECTED,
        reason=Reason(
            "expected",
            {
                "role": "output",
                "index": 0,
                "dtype": "float16",
                "neginf": 4,
                "total": 4,
                "rule": "mask-fill",
                "why": "a mask",
                "why_zh": "掩码",
            },
        ),
        deciding=0,
        rule="mask-fill",
    )
    records = (
        OverflowRecord(
            units=(
                OverflowUnit(
                    "AIC", (0x20,), 11, 2, 24, fields=(("pc_start", 0x1000), ("core_id", 3))
                ),
                OverflowUnit("DHA", (0x900,), 11, 2, 24),
            ),
            file=f"{FOLDER}/Opdebug.Node_OpDebug.1.1.1",
            timestamp=1764417600003150,
            place=PLACE,
            record_id=7,
        ),
        OverflowRecord(
            units=(OverflowUnit("AIV", (0, 0, 0, 0), None, None, None),),
            file=f"{FOLDER}/Opdebug.Node_OpDebug.1.1.2",
            place=PLACE,
            record_id=8,
        ),
    )
    return Scan(
        scan_id="20251129-1",
        root="/data/run",
        tool_version="1.2.3",
        exit_status=1,
        complete=True,
        mode=Mode("inf_nan"),
        counts=Counts(
            files=25,
            ops=24,
            tensors=75,
            bytes=1_048_576,
            expected=1,
            overflow_records=1,
            empty_overflow_records=1,
            findings=2,
            by_verdict={"origin": 1, "propagated": 1, "expected": 1},
        ),
        findings=(origin, after),
        expected=(mask,),
        overflow_records=records,
        record_rank={7: 1},
        config={"dump_path": "/data/run", "dump": {"dump_list": [], "dump_mode": "all"}},
        started_at="2025-11-29T12:00:00+00:00",
        duration_s=1.25,
    )


def clean_scan() -> Scan:
    return Scan(
        scan_id="20251129-2",
        root="/data/clean",
        tool_version="1.2.3",
        exit_status=0,
        complete=True,
        mode=Mode(),
        counts=Counts(files=24, ops=24, tensors=75, bytes=4096),
    )


def incomplete_scan() -> Scan:
    """Return a scan without findings where a file and a tensor could not be read."""
    op = OpRecord("Cast", "net/Cast", step=1, device=0, file="d/Cast.net_Cast.3.1.5", op_id=9)
    blank = TensorSummary(
        "output", 0, "complex32", "ND", (2,), checked=False, unchecked="unsupported_dtype"
    )
    return replace(
        clean_scan(),
        exit_status=3,
        complete=False,
        counts=Counts(files=2, ops=1, tensors=1, unchecked=1, read_failures=1, skipped=2),
        read_failures=(
            ReadFailure("d/Bad.x.1.1.1", "adump", "TruncatedDumpError", 8, "expected 64, found 3"),
        ),
        unchecked=((op, blank),),
        notes=(Reason("read_failures", {"count": 1}), Reason("unchecked", {"count": 1})),
    )


def named_scan() -> Scan:
    """Return a scan whose operators, files and messages have every hostile name."""
    findings = tuple(
        replace(
            finding,
            op=replace(finding.op, op_type=name, op_name=name, file=name, stack=(name,)),
            reason=Reason("propagated", {"producer": name, "role": "output", "nan": 8, "index": 0}),
        )
        for finding, name in ((make_finding(i), n) for i, n in enumerate(HOSTILE_NAMES, 1))
    )
    return replace(
        overflow_scan(),
        root="/data/\udcff\x1b]0;title\x07",
        findings=findings,
        read_failures=tuple(
            ReadFailure(name, "adump", "CorruptDumpError", None, name) for name in HOSTILE_NAMES
        ),
        config={name: name for name in HOSTILE_NAMES},
    )


def large_scan(count: int) -> Scan:
    """Return a scan of `count` findings in 4 steps on 8 devices."""
    findings = []
    for rank in range(1, count + 1):
        finding = make_finding(rank, Verdict.ORIGIN if rank == 1 else Verdict.PROPAGATED)
        op = replace(finding.op, step=rank % 4, device=rank % 8)
        findings.append(replace(finding, op=op))
    base = overflow_scan()
    return replace(
        base,
        findings=tuple(findings),
        counts=replace(base.counts, findings=count, by_verdict={"origin": 1}),
    )
