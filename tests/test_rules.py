"""Expected values: for every built-in rule what it covers, and what only looks like that.

The dumps are written by hand and hold real numbers, so that the masks are found in the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import blocked_arrays
import builders
from cli_runs import run
from dumpscope.errors import ConfigError
from dumpscope.rules import load_rules
from dumpscope.words import render
from handmade import Array, Dump

INF = np.float32(np.inf)
F32_MIN = np.finfo(np.float32).min
CAUSAL = np.triu(np.ones((16, 16), np.bool_), 1)
SCORES = np.random.default_rng(7).uniform(-3, 3, (16, 16)).astype(np.float16)


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    return Dump(tmp_path / "dump")


def filled(value: float, where: Array = CAUSAL, dtype: Any = np.float16) -> Array:
    """The scores with one value at some positions."""
    made: Array = np.where(where, value, SCORES.astype(np.float32)).astype(dtype)
    return made


# --- masks that are filled in -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (-np.inf, np.float16),
        (-np.inf, ml_dtypes.bfloat16),
        (-65504.0, np.float16),
        (float(F32_MIN), np.float32),
        (float.fromhex("-0x1.fep127"), ml_dtypes.bfloat16),
    ],
)
def test_a_filled_mask_is_expected(dump: Dump, value: float, dtype: Any) -> None:
    dump.run("MaskedFill", [SCORES, CAUSAL], [filled(value, dtype=dtype)])
    assert dump.verdicts() == {"expected MaskedFill": "mask_fill"}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (filled(np.inf), "origin"),
        (filled(np.nan), "origin"),
        (filled(65504.0), "saturated_origin"),
        # Two constants in one tensor are no mask.
        (np.where(np.tri(16, k=-8), np.float16(-np.inf), filled(-65504.0)), "origin"),
        (np.where(np.tri(16, k=-8), np.float16(np.inf), filled(-np.inf)), "origin"),
    ],
)
def test_a_fill_with_anything_else_is_a_finding(dump: Dump, values: Array, verdict: str) -> None:
    dump.run("MaskedFill", [SCORES, CAUSAL], [values])
    assert dump.verdicts() == {"MaskedFill": verdict}


def test_a_fill_that_was_given_bad_scores_is_part_of_their_way(dump: Dump) -> None:
    logs = filled(-np.inf, np.eye(16, dtype=np.bool_))
    dump.run("Log", [np.abs(SCORES)], [logs])
    dump.run("MaskedFill", [logs, CAUSAL], [np.where(CAUSAL, np.float16(-np.inf), logs)])
    assert dump.verdicts() == {"Log": "origin", "MaskedFill": "propagated"}


def test_the_minimum_of_another_type_is_an_ordinary_number(dump: Dump) -> None:
    dump.run("MaskedFill", [SCORES.astype(np.float32), CAUSAL], [filled(-65504.0, dtype="f4")])
    assert dump.verdicts() == {}


def test_a_row_that_is_masked_altogether_is_a_finding_that_names_the_mask(dump: Dump) -> None:
    padded = CAUSAL | (np.arange(16) == 5)[:, None]
    masked = filled(-np.inf, padded).astype(np.float32)
    with np.errstate(invalid="ignore"):
        powers = np.exp(masked - masked.max(axis=1, keepdims=True))
        weights = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float16)
    assert np.isnan(weights).any(axis=1).tolist() == [row == 5 for row in range(16)]
    dump.run("MaskedFill", [SCORES, padded], [masked.astype(np.float16)])
    dump.run("SoftmaxV2", [masked.astype(np.float16)], [weights])
    answer = dump.ask()
    assert [str(f.verdict) for f in answer.findings] == ["origin"]
    assert [f.rule for f in answer.expected] == ["mask_fill"]
    told = render(answer.findings[0].reason)
    assert "16 NaN of 256 float16 elements" in told
    assert "the mask constant in input 0" in told
    assert told.endswith("All of them are in row 5.")


# --- masks that are selected ----------------------------------------------------------------------


def test_a_selected_mask_is_expected(dump: Dump) -> None:
    dump.run("SelectV2", [CAUSAL, SCORES], [filled(-np.inf)])
    assert dump.verdicts() == {"expected SelectV2": "mask_select"}


def test_a_selection_of_what_another_operator_did_wrong_is_none(dump: Dump) -> None:
    logs = filled(-np.inf)
    dump.run("Log", [np.abs(SCORES)], [logs])
    dump.run("SelectV2", [CAUSAL, logs, SCORES], [logs])
    assert dump.verdicts() == {"Log": "origin", "SelectV2": "propagated"}


# --- masks that are carried on --------------------------------------------------------------------


def test_a_cast_turns_the_minimum_of_a_wider_type_into_a_mask(dump: Dump) -> None:
    wide = filled(float(F32_MIN), dtype=np.float32)
    with np.errstate(over="ignore"):
        dump.run("Cast", [wide], [wide.astype(np.float16)])
    assert dump.verdicts() == {"expected Cast": "mask_carried"}


def test_a_cast_that_leaves_the_range_elsewhere_as_well_is_a_finding(dump: Dump) -> None:
    wide = filled(float(F32_MIN), dtype=np.float32)
    wide[3, 0] = -1e6
    with np.errstate(over="ignore"):
        dump.run("Cast", [wide], [wide.astype(np.float16)])
    assert dump.verdicts()["Cast"] == "origin"


def test_a_sum_that_leaves_the_range_at_other_positions_is_a_finding(dump: Dump) -> None:
    mask = filled(-65504.0) * CAUSAL
    bias = np.where(np.eye(16), np.float16(-np.inf), np.float16(0))
    dump.run("Add", [SCORES, mask], [np.where(CAUSAL, np.float16(-np.inf), SCORES)])
    dump.run("Sub", [SCORES, SCORES], [bias])
    assert dump.verdicts() == {
        "Sub": "origin",
        "expected Add": "mask_carried",
    }


@pytest.mark.parametrize("op_type", ["Exp", "Log", "RealDiv", "BatchMatMulV2", "ReduceMin"])
def test_operators_that_compute_carry_no_mask(dump: Dump, op_type: str) -> None:
    dump.run(op_type, [filled(-65504.0)], [filled(-np.inf)])
    assert dump.verdicts()[op_type] in ("origin", "saturated_origin")


# --- masks from outside ---------------------------------------------------------------------------


def test_a_mask_from_outside_is_expected_by_its_share(dump: Dump) -> None:
    dump.run("SoftmaxV2", [filled(-np.inf)], [np.abs(SCORES)])
    assert dump.verdicts() == {"expected SoftmaxV2": "mask_input"}


@pytest.mark.parametrize(
    "values",
    [
        filled(np.inf),
        filled(np.nan),
        # 12 of 256 are less than 5 %.
        filled(-np.inf, np.arange(256).reshape(16, 16) < 12),
        np.where(np.eye(16), np.float16(np.inf), filled(-np.inf)),
    ],
)
def test_what_comes_from_outside_and_is_no_mask_is_a_finding(dump: Dump, values: Array) -> None:
    dump.run("SoftmaxV2", [values], [np.abs(SCORES)])
    assert dump.verdicts() == {"SoftmaxV2": "bad_input"}


def test_a_mask_beside_a_bad_input_is_listed_and_the_input_is_a_finding(dump: Dump) -> None:
    weights = filled(np.nan, np.eye(16, dtype=np.bool_))
    dump.run("Add", [filled(-np.inf), weights], [np.full((16, 16), np.nan, np.float16)])
    assert dump.verdicts() == {"Add": "bad_input", "expected Add": "mask_input"}


# --- rows of a cache that nobody filled -----------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "told"), [((range(12, 16),), "rows 12-15"), ((range(9, 12), (15,)), "rows 9-15")]
)
def test_rows_behind_the_valid_length_are_a_finding_with_its_rows(
    dump: Dump, rows: tuple[range | tuple[int, ...], ...], told: str
) -> None:
    cache = SCORES.copy()
    for some in rows:
        cache[list(some)] = np.nan
    dump.run("PromptFlashAttention", [SCORES, cache], [SCORES])
    (finding,) = dump.ask().findings
    assert str(finding.verdict) == "bad_input"
    assert f"All of them are in {told}." in render(finding.reason)


# --- memory that nobody wrote ---------------------------------------------------------------------


def test_fresh_memory_is_expected(dump: Dump) -> None:
    dump.run("Empty", [], [filled(np.nan)])
    dump.run("Fill", [filled(np.nan)], [SCORES])
    assert dump.verdicts()["expected Empty"] == "uninitialised"
    assert "Empty" not in dump.verdicts()


def test_whoever_computes_with_fresh_memory_is_a_finding(dump: Dump) -> None:
    fresh = filled(np.nan)
    dump.run("Empty", [], [fresh])
    dump.run("Add", [SCORES, fresh], [SCORES + fresh])
    assert dump.verdicts() == {"Add": "origin", "expected Empty": "uninitialised"}
    (finding,) = dump.ask().findings
    assert "in input 1, where a rule expects them (memory that was allocated and not yet" in render(
        finding.reason
    )
    assert "输入 1 中，而有规则认定那里的异常属于预期（已分配但尚未写入的内存）" in render(
        finding.reason, "zh"
    )


@pytest.mark.parametrize("op_type", ["ZerosLike", "Ones", "RandomStandardNormal"])
def test_memory_that_is_filled_with_numbers_is_not_fresh(dump: Dump, op_type: str) -> None:
    dump.run(op_type, [], [filled(np.nan)])
    assert dump.verdicts() == {op_type: "origin"}


# --- memory that a receive is about to fill -------------------------------------------------------


def test_what_lies_in_a_receive_buffer_is_expected(dump: Dump) -> None:
    dump.run("HcomReceive", [filled(np.nan)], [SCORES], device=1)
    assert dump.verdicts() == {"expected HcomReceive": "receive_buffer"}


def test_what_lies_in_the_buffer_of_a_broadcast_is_expected_and_the_roots_value_is_not(
    dump: Dump,
) -> None:
    weights = filled(np.inf, np.eye(16, dtype=np.bool_))
    dump.run("HcomBroadcast", [weights], [weights], device=0)
    dump.run("HcomBroadcast", [filled(np.nan)], [weights], device=1)
    answer = dump.ask()
    assert [(f.op.device, str(f.verdict)) for f in answer.findings] == [
        (0, "bad_input"),
        (1, "received"),
    ]
    assert [(f.op.device, f.rule) for f in answer.expected] == [(1, "receive_buffer")]


def test_what_a_rank_sends_is_no_buffer(dump: Dump) -> None:
    dump.run("HcomSend", [filled(np.nan)], [])
    assert dump.verdicts() == {"HcomSend": "bad_input"}


def test_what_a_rank_adds_to_a_sum_is_no_buffer(dump: Dump) -> None:
    dump.run("HcomAllReduce", [filled(np.nan)], [filled(np.nan)])
    assert dump.verdicts() == {"HcomAllReduce": "bad_input"}


def test_a_buffer_recorded_after_it_was_filled_is_told_once(dump: Dump) -> None:
    weights = filled(np.inf, np.eye(16, dtype=np.bool_))
    dump.run("HcomReceive", [weights], [weights], device=1)
    answer = dump.ask()
    assert [str(f.verdict) for f in answer.findings] == ["received"]
    assert answer.expected == ()


# --- padding --------------------------------------------------------------------------------------


def five_channels(padding: float, last: float) -> tuple[bytes, tuple[int, ...]]:
    """A (1, 5, 2, 2) tensor in NC1HWC0 with 16 channels to a block."""
    logical = np.full((1, 5, 2, 2), 0.5, np.float16)
    logical[0, 4, 1, 1] = last
    stored, shape = blocked_arrays.nc1hwc0(logical, "NCHW", 16, np.float16(padding))
    return stored.astype("<f2").tobytes(), shape


def blocked(padding: float, last: float) -> builders.Tensor:
    raw, shape = five_channels(padding, last)
    return builders.Tensor(
        raw, builders.FLOAT16, shape, builders.NC1HWC0, original_shape=(1, 5, 2, 2),
        origin_format=builders.NCHW,
    )  # fmt: skip


def test_padding_of_a_blocked_layout_is_no_finding(dump: Dump) -> None:
    dump.run("Conv2D", [SCORES], [blocked(np.nan, 0.5)])
    assert dump.verdicts() == {}


def test_the_last_channel_before_the_padding_is_one(dump: Dump) -> None:
    dump.run("Conv2D", [SCORES], [blocked(0.0, np.nan)])
    (finding,) = dump.ask().findings
    assert finding.deciding is not None
    stats = finding.op.tensors[finding.deciding].stats
    assert (str(finding.verdict), stats.nan, stats.first_bad) == ("origin", 1, (0, 4, 1, 1))


def test_what_would_be_padding_of_a_blocked_layout_is_none_in_a_plain_one(dump: Dump) -> None:
    raw, shape = five_channels(np.nan, 0.5)
    dump.run("Conv2D", [SCORES], [builders.Tensor(raw, builders.FLOAT16, shape, builders.ND)])
    (finding,) = dump.ask().findings
    assert finding.deciding is not None
    # 11 of 16 channels at 4 positions.
    assert finding.op.tensors[finding.deciding].stats.nan == 44


# --- rules of the user ----------------------------------------------------------------------------

GLOBS = """
[[rule]]
name = "tail"
op_type = "Sq*"
op_name = ["other", "*_op"]
slot = "output.0"
kind = ["posinf"]
min_share = 0.5
reason = "the tail of the schedule"
"""
HALF = np.where(np.arange(256).reshape(16, 16) < 128, np.float16(np.inf), SCORES)
LESS = np.where(np.arange(256).reshape(16, 16) < 127, np.float16(np.inf), SCORES)


def test_a_rule_of_the_user_covers_what_it_names(dump: Dump) -> None:
    dump.run("Square", [SCORES], [HALF])
    answer = dump.ask(GLOBS)
    assert answer.findings == ()
    (kept,) = answer.expected
    assert kept.rule == "tail"
    assert render(kept.reason).endswith(
        "on purpose: the tail of the schedule; rule tail. All of them are in rows 0-7."
    )


@pytest.mark.parametrize(
    ("op_type", "outputs"),
    [
        ("Sqrt", [LESS]),  # a share just below
        ("Sqrt", [np.where(HALF == INF, np.float16(np.nan), SCORES)]),  # another kind
        ("Sqrt", [np.where(HALF == INF, np.float16(-np.inf), SCORES)]),
        ("Sqrt", [SCORES, HALF]),  # another slot
        ("Rsqrt", [HALF]),  # another type
    ],
)
def test_what_a_rule_does_not_name_stays_a_finding(
    dump: Dump, op_type: str, outputs: list[Array]
) -> None:
    dump.run(op_type, [SCORES], list(outputs))
    assert dump.verdicts(GLOBS) == {op_type: "origin"}


@pytest.mark.parametrize("allowed", ["nan", "posinf", "neginf", "saturated"])
def test_each_kind_allows_only_itself(dump: Dump, allowed: str) -> None:
    values = {"nan": np.nan, "posinf": np.inf, "neginf": -np.inf, "saturated": 65504.0}
    for kind, value in values.items():
        dump.run(f"Exp{kind}", [SCORES], [filled(value)])
    found = dump.verdicts(f'[[rule]]\nname = "r"\nop_type = "Exp*"\nkind = "{allowed}"\n')
    assert {key for key in found if key.startswith("expected")} == {f"expected Exp{allowed}"}
    assert len(found) == 4


def test_a_rule_of_the_user_comes_before_a_built_in_one(dump: Dump) -> None:
    dump.run("MaskedFill", [SCORES, CAUSAL], [filled(-np.inf)])
    assert dump.verdicts('[[rule]]\nname = "mine"\nop_type = "maskedfill"\n') == {
        "expected MaskedFill": "mine"
    }


def test_only_masks_in_one_direction_where_that_is_asked_for(dump: Dump) -> None:
    rule = '[[rule]]\nname = "mine"\nop_type = "Exp"\none_sided = true\n'
    dump.run("Exp", [SCORES], [filled(np.inf)])
    assert dump.verdicts(rule) == {"Exp": "origin"}
    assert dump.verdicts(rule.replace("one_sided = true", "")) == {"expected Exp": "mine"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[[rule]\n", "no valid TOML"),
        ('[[rule]]\nop_type = "A"\nop_type = "B"\n', "no valid TOML"),
        ('[[rules]]\nop_type = "A"\n', "expected only [[rule]] tables, found 'rules'"),
        ('[rule]\nop_type = "A"\n', "begin each rule with [[rule]]"),
        ("rule = [1]\n", "begin each rule with [[rule]]"),
        ('[[rule]]\nop_type = "A"\noptype = "B"\n', "rule 1: unknown key 'optype'; known are"),
        ('[[rule]]\nname = "x"\nop_type = 3\n', "rule 1 ('x'): op_type is a string or a list of"),
        ('[[rule]]\nop_name = ["a", 1]\n', "rule 1: op_name is a string or a list of strings"),
        ("[[rule]]\nop_type = []\n", "rule 1: op_type is empty"),
        ('[[rule]]\nop_type = ["A", ""]\n', "rule 1: op_type is empty"),
        ('[[rule]]\nkind = ["nan", "inf"]\n', "rule 1: kind 'inf' is none of ['nan', 'posinf',"),
        ('[[rule]]\nslot = "outputs.0"\n', "rule 1: slot 'outputs.0' matches no tensor"),
        ('[[rule]]\nslot = "output"\n', "rule 1: slot 'output' matches no tensor"),
        ('[[rule]]\nop_type = "A"\nmin_share = 5\n', "min_share is a number from 0 to 1, found 5"),
        ('[[rule]]\nop_type = "A"\nmin_share = true\n', "min_share is a number from 0 to 1"),
        ('[[rule]]\nop_type = "A"\nmin_share = nan\n', "min_share is a number from 0 to 1"),
        ('[[rule]]\nop_type = "A"\none_sided = 1\n', "one_sided is true or false, found 1"),
        ('[[rule]]\nop_type = "A"\ncondition = "clean"\n', "condition 'clean' is none of"),
        ('[[rule]]\nop_type = "A"\nreason = 4\n', "reason is a string, found 4"),
        ('[[rule]]\nname = "all"\n', "rule 1 ('all'): it would cover every bad value there is"),
        ('[[rule]]\nop_type = "A"\n[[rule]]\nkind = "x"\n', "rule 2: kind 'x' is none of"),
    ],
)
def test_what_is_wrong_with_a_rules_file_is_told_with_its_place(
    tmp_path: Path, content: str, told: str
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_rules(str(file))
    assert str(raised.value).startswith(f"{file}: ")
    assert told in str(raised.value)


def test_a_rules_file_in_another_encoding_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes('[[rule]]\nname = "掩码"\n'.encode("gb18030"))
    with pytest.raises(ConfigError, match=r"mine\.toml: no valid TOML"):
        load_rules(str(file))


def test_a_rules_file_without_an_end_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)  # more than any memory holds
    with pytest.raises(ConfigError, match=r"mine\.toml: expected rules of at most 4194304 bytes"):
        load_rules(str(file))


@pytest.mark.parametrize("slot", ["output.*", "*", "input.12?", "output.1000", "*put.[01]"])
def test_slots_are_globs(tmp_path: Path, slot: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[[rule]]\nslot = "{slot}"\n', encoding="utf-8")
    assert load_rules(str(file)).rules[0].slot == (slot,)


def test_every_rule_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(GLOBS, encoding="utf-8")
    listed = run("checks", "--rules", "mine.toml").out
    for name in ("mask_fill", "mask_select", "mask_carried", "mask_input", "uninitialised",
                 "receive_buffer"):  # fmt: skip
        assert f"\n{name} (built-in): " in listed
    assert "\ntail (mine.toml): the tail of the schedule\n" in listed
    assert "condition: receive_buffer" in listed
    assert "\nreceive_buffer（内置）：即将由接收算子" in run("checks", "--lang", "zh").out


def test_what_is_expected_stands_in_every_report(
    dump: Dump, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump.run("HcomReceive", [filled(np.nan)], [SCORES])
    dump.run("Exp", [SCORES], [filled(np.inf)])
    monkeypatch.chdir(dump.root.parent)
    document = run("scan", dump.root, "--store", "s.db", "--format", "json").out
    assert '"rule": "receive_buffer"' in document
    for report in ("--html", "--csv", "--markdown"):
        written = run("report", f"{report}=out", "--store", "s.db", "--force")
        assert written.status == 0
    assert [f.rule for f in dump.ask().expected] == ["receive_buffer"]
    shown = run("show", "HcomReceive_op", "--store", "s.db")
    assert shown.status == 0, shown.err
    assert "receive_buffer" in shown.out
