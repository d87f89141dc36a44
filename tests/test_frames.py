"""Tables as data frames."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import dumpscope
from dumpscope.errors import OptionsError


@pytest.fixture(scope="module")
def answer() -> dumpscope.Scan:
    return dumpscope.scan(Path(__file__).parent.parent / "fixtures" / "sample_dump")


def test_findings_become_rows_with_whole_numbers(answer: dumpscope.Scan) -> None:
    frame = dumpscope.to_frame(answer)
    assert list(frame["rank"]) == [f.rank for f in answer.findings]
    assert frame["op_type"][0] == "BatchMatMulV2"
    assert pd.api.types.is_integer_dtype(frame["task_id"])
    assert frame["posinf"][0] == 2


def test_tensors_are_a_table_of_their_own(answer: dumpscope.Scan) -> None:
    frame = dumpscope.to_frame(answer, "tensors")
    assert len(frame) == sum(len(f.op.tensors) for f in answer.findings)


def test_an_unknown_table_is_refused(answer: dumpscope.Scan) -> None:
    with pytest.raises(OptionsError, match="findings"):
        dumpscope.to_frame(answer, "nothing")
