"""Trends: what a point holds, when a tensor leaves its band, and the forms it is told in."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_runs import run
from dump_trees import write_op
from dumpscope.model import OpRecord, Place, TensorStats
from dumpscope.nightly import trend as trend_module
from dumpscope.nightly.trend import LeftBand, Series, TrendSource, trend_series
from dumpscope.reporters.trend_plot import draw_trend
from dumpscope.reporters.trend_report import Trend, print_trend, write_trend_csv
from op_builders import make_op, tensor
from scan_samples import HOSTILE_NAMES


def measured(values: npt.ArrayLike) -> TensorStats:
    """Statistics by numpy alone."""
    array = np.asarray(values, np.float64)
    finite = array[np.isfinite(array)]
    return TensorStats(
        count=array.size,
        nan=int(np.isnan(array).sum()),
        posinf=int(np.isposinf(array).sum()),
        neginf=int(np.isneginf(array).sum()),
        min=float(finite.min()) if finite.size else None,
        max=float(finite.max()) if finite.size else None,
        mean=float(finite.mean()) if finite.size else None,
        std=float(finite.std()) if finite.size else None,
        rms=float(np.sqrt((finite**2).mean())) if finite.size else None,
        l2=float(np.linalg.norm(finite)) if finite.size else None,
    )


def execution(
    values: npt.ArrayLike | TensorStats, step: int, name: str = "net/x", **more: Any
) -> OpRecord:
    stats = values if isinstance(values, TensorStats) else measured(values)
    return make_op("Add", [], [stats], at=step, step=step, name=name, **more)


def follow(ops: Sequence[OpRecord], **options: Any) -> list[Series]:
    return list(trend_series([TrendSource("scan", lambda: ops, len(ops))], **options))


def left_of(rows: Sequence[npt.ArrayLike]) -> LeftBand | None:
    (series,) = follow([execution(values, step) for step, values in enumerate(rows)])
    return series.left


# --- points -------------------------------------------------------------------------------------


def test_a_point_for_each_step_in_order() -> None:
    ops = [execution([1.0, -8.0], 2), execution([2.0, math.nan], 0), execution([4.0], 1)]
    (series,) = follow(ops)
    assert [point.step for point in series.points] == [0, 1, 2]
    assert [point.largest for point in series.points] == [2.0, 4.0, 8.0]
    assert [point.nan_share for point in series.points] == [0.5, 0.0, 0.0]
    assert series.points[2].headroom == pytest.approx(math.log2(65504 / 8))


_parts = st.lists(
    st.lists(st.floats(-1e3, 1e3, width=16), min_size=1, max_size=8), min_size=1, max_size=5
)


@given(_parts)
def test_executions_of_one_step_are_taken_together(parts: list[list[float]]) -> None:
    (series,) = follow([execution(values, 0) for values in parts])
    (point,) = series.points
    whole = measured([value for values in parts for value in values])
    assert point.count == whole.count
    assert point.mean == pytest.approx(whole.mean, rel=1e-9, abs=1e-9)
    assert point.std == pytest.approx(whole.std, rel=1e-6, abs=1e-6)
    assert point.rms == pytest.approx(whole.rms, rel=1e-9, abs=1e-12)
    assert point.l2 == pytest.approx(whole.l2, rel=1e-9, abs=1e-12)


def test_what_was_only_screened_is_not_known() -> None:
    screened = TensorStats(count=4, min=-1.0, max=2.0)
    (series,) = follow([execution(screened, 0), execution([1.0], 1), execution(screened, 1)])
    first, second = series.points
    assert (first.rms, first.l2, first.mean, first.std) == (None, None, None, None)
    assert (second.rms, second.largest) == (None, 2.0)


def test_norms_that_another_tool_wrote_give_the_rms() -> None:
    (series,) = follow([execution(TensorStats(count=4, min=-1.0, max=2.0, l2=6.0), 0)])
    assert (series.points[0].l2, series.points[0].rms) == (6.0, 3.0)
    assert series.points[0].std is None


def test_devices_and_runs_stay_apart_within_a_scan() -> None:
    ops = [
        execution([1.0], 0, device=device, run=run_name)
        for device in (0, 1)
        for run_name in ("20260101000000", "20260102000000")
    ]
    found = follow(ops)
    assert [series.device for series in found] == [0, 1]
    assert [point.run for point in found[0].points] == ["20260101000000", "20260102000000"]


def test_scans_are_points_across_scans() -> None:
    nights = [
        [
            execution([value], 0, device=0, place=Place(model_name=f"m_2026010{n}000000_3")),
            execution([2 * value], 1, device=1, place=Place(model_name=f"m_2026010{n}000000_4")),
        ]
        for n, value in enumerate((1.0, 3.0), 1)
    ]
    sources = [TrendSource(f"s{n}", partial(list, ops)) for n, ops in enumerate(nights)]
    (series,) = trend_series(sources, across_scans=True)
    assert [(point.scan_id, point.largest) for point in series.points] == [("s0", 2.0), ("s1", 6.0)]
    assert series.device is None


def test_inputs_only_where_asked_for() -> None:
    op = make_op("Add", [measured([1.0])], [measured([2.0])])
    assert [series.slot for series in follow([op])] == ["output.0"]
    both = follow([op], roles=("input", "output"))
    assert [series.slot for series in both] == ["input.0", "output.0"]


def test_several_passes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ops = [execution([float(n)], step, f"net/{n}") for step in range(3) for n in range(1, 20)]
    whole = follow(ops)
    monkeypatch.setattr(trend_module, "MOST_IN_MEMORY", 10)
    again = follow(ops)
    assert [s.identity for s in again] != [s.identity for s in whole]
    assert sorted(again, key=Series.order) == sorted(whole, key=Series.order)


# --- gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gradient"),
    [
        ("Functional.linear.0.backward", True),
        ("net/layer1/grad_w", True),
        ("Gradients/x", True),
        ("Functional.linear.0.forward", False),
        ("net/great", False),
    ],
)
def test_gradients_are_known_by_name(name: str, gradient: bool) -> None:
    (series,) = follow([execution([1.0], 0, name)])
    assert series.gradient is gradient


def test_a_norm_over_ten_thousand_is_marked() -> None:
    def grad(values: npt.ArrayLike) -> bool:
        (series,) = follow([execution(values, 0, "w_grad")])
        return series.large_gradient

    assert not grad([1e4])
    assert grad([1e4, 1.0])
    assert not follow([execution([2e4], 0, "w")])[0].large_gradient


# --- the band -----------------------------------------------------------------------------------


def test_the_first_nan_leaves_the_band() -> None:
    left = left_of([[1.0], [1.0, math.nan, math.inf]])
    assert left == LeftBand(1, "nonfinite", 2.0, 0.0, 0.0)


def test_what_was_bad_from_the_first_is_in_its_band() -> None:
    assert left_of([[math.nan], [math.nan], [math.nan, 1.0]]) is None


def test_three_points_are_needed_before() -> None:
    assert left_of([[1.0], [1.0], [4.0]]) is None
    left = left_of([[1.0], [1.0], [1.0], [4.0]])
    assert left == LeftBand(3, "max", 4.0, 0.5, 2.0)


def test_a_bit_is_within_the_band() -> None:
    assert left_of([[1.0], [1.0], [1.0], [2.0]]) is None
    assert left_of([[1.0], [1.0], [1.0], [2.1]]) is not None
    shrunk = left_of([[1.0], [1.0], [1.0], [0.4]])
    assert shrunk is not None
    assert shrunk.metric == "max"


def test_a_tensor_that_varies_has_a_wider_band() -> None:
    # log2: 0, 1, 2, so the median is 1 and the MAD 1: the band is 1 +- 6 * 1.4826 bits.
    width = 6 * 1.4826
    assert left_of([[1.0], [2.0], [4.0], [2.0 ** (1 + width - 0.01)]]) is None
    left = left_of([[1.0], [2.0], [4.0], [2.0 ** (1 + width + 0.01)]])
    assert left is not None
    assert left.low == pytest.approx(2.0 ** (1 - width))
    assert left.high == pytest.approx(2.0 ** (1 + width))


def test_one_spike_does_not_widen_the_band() -> None:
    rows = [[1.0], [1.0], [1.0], [1.0], [1.5]]
    assert left_of([*rows, [64.0]]) is not None


def test_the_rms_has_a_band_of_its_own() -> None:
    left = left_of([[1.0, 0.01], [1.0, 0.01], [1.0, 0.01], [1.0] + [0.0] * 99])
    assert left is not None
    assert left.metric == "rms"


def test_zeros_and_unknown_extremes_are_no_points_of_the_band() -> None:
    assert left_of([[0.0], [0.0], [0.0], [5.0]]) is None


# --- the forms ----------------------------------------------------------------------------------


@pytest.fixture
def hostile() -> list[Series]:
    ops = [
        execution([float(1 + step)], step, f"{name}_grad" if number % 2 else name)
        for number, name in enumerate(HOSTILE_NAMES)
        for step in range(2)
    ]
    named = [
        replace(op, tensors=(tensor("output", 0, op.tensors[0].stats, name=op.op_name),))
        for op in ops
    ]
    return follow(named)


def test_hostile_names_stay_text(hostile: list[Series], capsys: pytest.CaptureFixture[str]) -> None:
    found = Trend(("s",), False)
    found.take(hostile, 0)
    for lang in ("en", "zh"):
        print_trend(found, lang=lang)
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert max(map(len, out.splitlines())) <= 100
    target = io.BytesIO()
    write_trend_csv(hostile, target)
    rows = list(csv.DictReader(io.StringIO(target.getvalue().decode("utf-8-sig"), newline="")))
    assert len(rows) == 2 * len(HOSTILE_NAMES)
    assert not [row for row in rows if row["op_name"].startswith(("=", "+", "-", "@"))]
    for start in range(0, len(hostile), 8):
        root = ET.fromstring(draw_trend(hostile[start : start + 8]))
        assert {element.tag.rpartition("}")[2] for element in root.iter()} == {
            "svg", "title", "path", "text", "polyline", "circle", "rect",
        }  # fmt: skip


def test_a_plot_has_a_line_for_each_tensor_and_a_ring_where_one_left() -> None:
    rows = [[1.0], [1.0], [1.0], [64.0]]
    ops = [execution(values, step) for step, values in enumerate(rows)]
    ops += [execution([2.0], step, "net/y") for step in range(4)]
    root = ET.fromstring(draw_trend(follow(ops)))
    space = {"s": "http://www.w3.org/2000/svg"}
    lines = root.findall("s:polyline", space)
    assert len(lines) == 2
    points = [tuple(map(float, pair.split(","))) for pair in lines[0].get("points", "").split()]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert points[3][1] > points[2][1], "less headroom lies lower"
    rings = [c for c in root.findall("s:circle", space) if c.get("fill") == "none"]
    assert [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in rings] == [points[3]]


def test_nothing_to_plot() -> None:
    (series,) = follow([execution([0.0], 0)])
    assert draw_trend([series]) == ""


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five steps: x grows in the last, the gradient is large, y is NaN in step 2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
    for step, largest in enumerate((1.0, 1.5, 1.0, 1.5, 4096.0)):
        write_op(tmp_path / "dump", "Add", "net/x", outputs=[half([largest, 0.5])], step=step)
        write_op(
            tmp_path / "dump", "MatMul", "grad/w", outputs=[half([12000.0])], step=step, task=2
        )
        bad = math.nan if step == 2 else 1.0
        write_op(tmp_path / "dump", "Log", "net/y", outputs=[half([bad])], step=step, task=3)
    run("scan", "dump", "--stats", "full")
    return tmp_path


def half(values: Sequence[float]) -> npt.NDArray[np.float16]:
    return np.array(values, np.float16)


def test_the_steps_of_a_scan(scanned: Path) -> None:
    ended = run("trend", "--json")
    assert ended.status == 0
    document = json.loads(ended.out)
    assert (document["schema"], document["across"]) == ("dumpscope.trend/1", "steps")
    assert document["counts"] == {
        "tensors": 3, "left_band": 2, "large_gradients": 1, "left_out": 0,
    }  # fmt: skip
    y, x, w = document["series"]
    assert (y["op_name"], y["left_band"]["step"], y["left_band"]["metric"]) == (
        "net/y", 2, "nonfinite",
    )  # fmt: skip
    assert (x["op_name"], x["left_band"]["step"], x["left_band"]["metric"]) == ("net/x", 4, "max")
    assert x["left_band"]["value"] == 4096.0
    assert (w["op_name"], w["large_gradient"], w["left_band"]) == ("grad/w", True, None)
    assert [point["l2"] for point in w["points"]] == [12000.0] * 5


def test_the_table_marks_and_tells(scanned: Path) -> None:
    ended = run("trend", "--lang", "en")
    text = " ".join(ended.out.split())
    assert "2 of 3 tensors left their band" in text
    assert "12000!" in text or "12,000!" in text
    assert "step 2: 1 NaN or Inf" in text
    assert "step 4: max|x|" in text
    assert "3 个张量里有 2 个离开其区间" in run("trend", "--lang", "zh").out


def test_a_csv_has_a_row_per_point(scanned: Path) -> None:
    assert run("trend", "--csv").status == 0
    with open("dumpscope-trend.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    grown = [row for row in rows if row["op_name"] == "net/x"]
    assert [float(row["max_abs"]) for row in grown] == [1.0, 1.5, 1.0, 1.5, 4096.0]
    assert [row["left_band"] for row in grown] == ["false"] * 4 + ["true"]
    assert run("trend", "--csv").status == 2
    assert run("trend", "--csv", "--force").status == 0
    assert run("trend", "--csv=-").out.count("\r\n") == 16


def test_the_last_scans_of_a_store(scanned: Path) -> None:
    for night in range(4):
        write_op(
            scanned / f"n{night}", "Add", "net/x", outputs=[half([64.0 if night == 3 else 1.0])]
        )
        assert run("scan", f"n{night}", "--stats", "full").status == 0
    document = json.loads(run("trend", "--last", "4", "--op", "net/x", "--json").out)
    assert document["across"] == "scans"
    assert len(document["scans"]) == 4
    (series,) = document["series"]
    assert [point["max_abs"] for point in series["points"]] == [1.0, 1.0, 1.0, 64.0]
    assert series["left_band"]["scan_id"] == document["scans"][3]
    assert "scan 4: max|x| 64" in " ".join(run("trend", "--last", "4", "--lang", "en").out.split())


def test_wrong_usage(scanned: Path) -> None:
    assert run("trend", "--scan", "nothing").status == 2
    assert run("trend", "--csv=-", "--json").status == 2
    assert run("trend", "--last", "0").status == 2
    assert run("trend", "--store", "missing.db").status == 2
