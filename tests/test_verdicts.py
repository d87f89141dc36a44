"""Each verdict of docs/verdicts.md on executions built by hand, with its near misses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dumpscope.causality.dataflow import Dataflow, KnownInput, Producer
from dumpscope.causality.hardware import Flag
from dumpscope.causality.verdicts import Judge
from dumpscope.model import Finding, OpRecord, OverflowRecord, OverflowUnit, TensorStats, Verdict
from dumpscope.rules import load_rules
from op_builders import bad, clean, make_op, masked, saturated, tensor, unread

FLAG = Flag(
    OverflowRecord(units=(OverflowUnit("AIC", (0x100,)),), file="Opdebug.Node_OpDebug.1.1.1"),
    OverflowUnit("AIC", (0x100,)),
)


def judge(*ops: OpRecord, flagged: Sequence[OpRecord] = ()) -> list[Finding]:
    flags = {op.op_id: [FLAG] for op in flagged}
    return Judge(Dataflow(ops), rules=load_rules(), flags=flags).judge_all()


def verdicts(*ops: OpRecord, flagged: Sequence[OpRecord] = ()) -> dict[str, str]:
    return {f.op.op_type: f.verdict.value for f in judge(*ops, flagged=flagged)}


def test_finite_inputs_and_a_bad_output_are_an_origin() -> None:
    op = make_op("MatMulV2", [clean(400.5), clean()], [bad(posinf=7)])
    (finding,) = judge(op)
    assert finding.verdict is Verdict.ORIGIN
    assert finding.evidence == ("own_inputs",)
    assert finding.deciding == 2
    assert finding.reason.code == "origin"
    assert finding.reason.parameters["posinf"] == 7
    assert finding.reason.parameters["max_input"] == 400.5
    assert finding.reason.parameters["inputs"] == 2


def test_hardware_confirms_an_origin() -> None:
    op = make_op("MatMulV2", [clean()], [bad(posinf=7)])
    (finding,) = judge(op, flagged=[op])
    assert finding.verdict is Verdict.ORIGIN
    assert finding.reason.code == "origin_confirmed"
    assert finding.overflow is not None
    assert finding.overflow.confirmed
    assert finding.overflow.status == (0x100,)


def test_what_follows_an_origin_is_propagated_or_swallowed() -> None:
    assert verdicts(
        make_op("MatMulV2", [clean()], [bad(posinf=7)], at=1),
        make_op("SoftmaxV2", [bad(posinf=7)], [bad(nan=9)], at=2),
        make_op("Less", [bad(nan=9)], [clean()], at=3),
    ) == {"MatMulV2": "origin", "SoftmaxV2": "propagated", "Less": "swallowed"}


def test_a_bad_input_without_an_earlier_bad_output_is_bad_input() -> None:
    assert verdicts(make_op("Exp", [bad(nan=1)], [bad(nan=1)])) == {"Exp": "bad_input"}
    assert verdicts(make_op("Less", [bad(nan=1)], [clean()])) == {"Less": "bad_input"}


def test_order_reaches_neither_into_another_step_nor_into_another_device() -> None:
    first = make_op("MatMulV2", [clean()], [bad(posinf=7)], at=1)
    assert verdicts(first, make_op("Exp", [bad(nan=1)], [bad(nan=1)], at=2, step=1)) == {
        "MatMulV2": "origin",
        "Exp": "bad_input",
    }
    assert verdicts(first, make_op("Exp", [bad(nan=1)], [bad(nan=1)], at=2, device=1)) == {
        "MatMulV2": "origin",
        "Exp": "bad_input",
    }


def test_an_unchecked_input_makes_unknown_inputs() -> None:
    assert verdicts(make_op("Add", [clean(), unread], [bad(nan=1)])) == {"Add": "unknown_inputs"}


def test_an_input_that_was_cut_off_is_not_known_to_be_finite() -> None:
    cut = tensor("input", 0, clean(), missing_bytes=8)
    assert verdicts(make_op("Add", [cut], [bad(nan=1)])) == {"Add": "unknown_inputs"}


def test_an_optional_input_without_an_address_was_never_read() -> None:
    absent = tensor("input", 1, unread, dumped=False, checked=False, address=0)
    assert verdicts(make_op("Add", [clean(), absent], [bad(nan=1)])) == {"Add": "origin"}


def test_no_inputs_are_unknown_except_for_generators_and_sources() -> None:
    assert verdicts(make_op("MatMulV2", [], [bad(nan=1)])) == {"MatMulV2": "unknown_inputs"}
    assert verdicts(make_op("Range", [], [bad(nan=1)])) == {"Range": "origin"}
    assert verdicts(make_op("Data", [], [bad(nan=1)])) == {"Data": "bad_input"}


def test_outputs_alone_are_told_apart_by_order() -> None:
    assert verdicts(
        make_op("MatMulV2", [], [bad(posinf=1)], at=1), make_op("Exp", [], [bad(nan=1)], at=2)
    ) == {"MatMulV2": "unknown_inputs", "Exp": "propagated"}


def test_saturation_is_a_finding_where_no_input_is_saturated() -> None:
    assert verdicts(make_op("MatMulV2", [clean()], [saturated(5)])) == {
        "MatMulV2": "saturated_origin"
    }
    assert verdicts(make_op("Reshape", [saturated(5)], [saturated(5)])) == {}


def test_saturation_of_a_quantising_dtype_is_no_finding() -> None:
    output = tensor("output", 0, saturated(5), dtype="float8_e4m3fn")
    assert verdicts(make_op("Cast", [clean()], [output])) == {}


def test_the_hardware_alone_makes_a_status_origin() -> None:
    op = make_op("Sub", [clean()], [clean()])
    (finding,) = judge(op, flagged=[op])
    assert finding.verdict is Verdict.STATUS_ORIGIN
    assert finding.overflow is not None
    assert not finding.overflow.confirmed


def test_the_hardware_does_not_blame_whoever_was_given_a_bad_value() -> None:
    first = make_op("MatMulV2", [clean()], [bad(posinf=7)], at=1)
    second = make_op("Exp", [bad(posinf=7)], [bad(nan=7)], at=2)
    assert verdicts(first, second, flagged=[second])["Exp"] == "propagated"


@pytest.mark.parametrize("op_type", ["MaskedFill", "Tensor.masked_fill", "Fill", "SelectV2"])
def test_a_mask_is_expected(op_type: str) -> None:
    (finding,) = judge(make_op(op_type, [clean()], [masked(6, "d")]))
    assert finding.verdict is Verdict.EXPECTED
    assert finding.severity is None


@pytest.mark.parametrize("op_type", ["Log", "RealDiv", "Exp", "MatMulV2", "ReduceMax", "Conv2D"])
def test_one_sided_infinities_of_computing_operators_are_never_expected(op_type: str) -> None:
    (finding,) = judge(make_op(op_type, [clean()], [masked(6, "d")]))
    assert finding.verdict is Verdict.ORIGIN
    assert "maybe_mask" not in finding.reason.parameters


@pytest.mark.parametrize("stats", [bad(posinf=1), bad(nan=1), bad(nan=1, neginf=5)])
def test_a_fill_operator_may_write_no_other_value(stats: TensorStats) -> None:
    assert verdicts(make_op("MaskedFill", [clean()], [stats])) == {"MaskedFill": "origin"}


def test_behind_a_mask_a_softmax_is_clean() -> None:
    shared = tensor("output", 0, masked(6, "positions"), digest="bytes")
    read = tensor("input", 0, masked(6, "positions"), digest="bytes")
    assert verdicts(
        make_op("MaskedFill", [clean()], [shared], at=1),
        make_op("SoftmaxV2", [read], [clean()], at=2),
    ) == {"MaskedFill": "expected"}


def test_a_fully_masked_row_makes_the_softmax_an_origin_that_names_the_mask() -> None:
    shared = tensor("output", 0, masked(6, "positions"), digest="bytes")
    read = tensor("input", 0, masked(6, "positions"), digest="bytes")
    findings = judge(
        make_op("MaskedFill", [clean()], [shared], at=1),
        make_op("SoftmaxV2", [read], [bad(nan=8)], at=2),
    )
    assert [f.verdict.value for f in findings] == ["expected", "origin"]
    assert findings[1].reason.code == "origin_mask"
    assert findings[1].reason.parameters["index_in"] == 0


def test_a_sum_carries_a_mask_only_at_the_same_positions() -> None:
    mask = tensor("input", 1, masked(6, "positions", value=-65504.0))
    same = make_op("Add", [clean(), mask], [masked(6, "positions")])
    other = make_op("Add", [clean(), mask], [masked(6, "elsewhere")])
    assert verdicts(same) == {"Add": "expected"}
    assert verdicts(other) == {"Add": "origin"}


def test_a_mask_from_outside_is_expected_by_its_share() -> None:
    assert verdicts(make_op("SoftmaxV2", [masked(2, "p")], [clean()])) == {"SoftmaxV2": "expected"}
    assert verdicts(make_op("SoftmaxV2", [masked(1, "p")], [clean()])) == {"SoftmaxV2": "bad_input"}


def test_uninitialised_memory_is_expected() -> None:
    assert verdicts(make_op("Empty", [], [bad(nan=3, posinf=2)])) == {"Empty": "expected"}


def test_an_input_recorded_after_it_was_overwritten_says_nothing() -> None:
    read = tensor("input", 0, bad(nan=3), digest="bytes", address=0x1000)
    written = tensor("output", 0, bad(nan=3), digest="bytes", address=0x1000)
    assert verdicts(make_op("Relu", [read], [written])) == {"Relu": "unknown_inputs"}


def test_values_that_were_written_after_the_fact_are_not_told_as_what_was_read() -> None:
    buffer = {"digest": "bytes", "address": 0x1000}
    before = make_op("Cast", [clean(3)], [tensor("output", 0, clean(9), address=0x1000)], at=1)
    later = bad(posinf=30)  # its finite elements reach 1, those that were read reach 9
    op = make_op(
        "Div",
        [tensor("input", 0, later, **buffer), clean(2)],
        [tensor("output", 0, later, **buffer)],
        at=2,
    )
    known = KnownInput((Producer(before, before.outputs[0], "address"),))
    flow = Dataflow([before, op], {(op.op_id, 0): known})
    (finding,) = Judge(flow, rules=load_rules(), flags={}).judge_all()
    assert finding.verdict is Verdict.ORIGIN
    assert finding.reason.parameters["max_input"] is None


def test_a_buffer_that_is_received_into_is_no_value_that_was_read() -> None:
    findings = judge(
        make_op("HcomReceive", [clean(999)], [bad(nan=1)], name="pp/HcomReceive_1", device=1)
    )
    assert [f.reason.parameters["max_input"] for f in findings] == [None]


def all_reduce(device: int, inp: TensorStats, out: TensorStats, at: int = 5) -> OpRecord:
    return make_op("HcomAllReduce", [inp], [out], at=at, device=device, name="grad/HcomAllReduce_1")


def test_a_rank_receives_what_another_rank_sent() -> None:
    findings = judge(
        make_op("Mul", [clean()], [bad(posinf=3)], at=1, device=1),
        all_reduce(0, clean(), bad(nan=3)),
        all_reduce(1, bad(posinf=3), bad(nan=3)),
    )
    assert {(f.op.op_type, f.op.device): f.verdict.value for f in findings} == {
        ("Mul", 1): "origin",
        ("HcomAllReduce", 0): "received",
        ("HcomAllReduce", 1): "propagated",
    }
    received = next(f for f in findings if f.verdict is Verdict.RECEIVED)
    assert received.reason.parameters["ranks"] == "1"


def test_a_sum_over_finite_ranks_is_itself_the_origin() -> None:
    findings = judge(all_reduce(0, clean(), bad(posinf=3)), all_reduce(1, clean(), bad(posinf=3)))
    assert [f.verdict.value for f in findings] == ["origin", "origin"]


def test_a_rank_that_is_not_in_the_dump_may_have_sent_it() -> None:
    findings = judge(all_reduce(0, clean(), bad(posinf=3)), all_reduce(2, clean(), bad(posinf=3)))
    assert [f.verdict.value for f in findings] == ["received", "received"]


def test_a_module_does_not_outrank_what_it_contains() -> None:
    inner = make_op(
        "Torch.matmul", [clean()], [bad(posinf=1)], at=1, parent="Module.attn.forward.0"
    )
    module = make_op(
        "Module.attn", [clean()], [bad(nan=1)], at=2, name="Module.attn.forward.0", container=True
    )
    assert verdicts(inner, module) == {"Torch.matmul": "origin", "Module.attn": "propagated"}


def test_a_value_that_turns_up_inside_a_module_arose_in_it() -> None:
    softmax = make_op(
        "Module.softmax", [bad(posinf=1)], [bad(nan=1)], at=1, name="Module.softmax.forward.0",
        container=True, parent="Module.attn.forward.0",
    )  # fmt: skip
    module = make_op(
        "Module.attn", [clean()], [bad(nan=1)], at=2, name="Module.attn.forward.0", container=True
    )
    assert verdicts(softmax, module) == {"Module.softmax": "propagated", "Module.attn": "origin"}


def test_a_parameter_is_not_made_by_the_module_around_or_by_what_ran_before() -> None:
    weight = tensor("input", 1, bad(nan=1), name="parameters.weight")
    other = make_op("Torch.log", [clean()], [bad(nan=2)], at=1)
    inner = make_op(
        "Module.fc", [clean(), weight], [bad(nan=4)], at=2, name="Module.fc.forward.0",
        container=True, parent="Module.net.forward.0",
    )  # fmt: skip
    module = make_op(
        "Module.net", [clean()], [bad(nan=4)], at=3, name="Module.net.forward.0", container=True
    )
    assert verdicts(inner, module) == {"Module.fc": "bad_input", "Module.net": "propagated"}
    assert verdicts(other, inner)["Module.fc"] == "bad_input"
