"""What docs/verdicts.md says of evidence, half dumps and ranks, tried on dumps made for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import builders
from cli_runs import run
from dumpscope.model import Finding
from dumpscope.words import render
from handmade import Array, Dump, encode

VALUES = np.random.default_rng(11).uniform(-3, 3, (8, 16)).astype(np.float16)


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    return Dump(tmp_path / "dump")


def with_nan(*rows: int) -> Array:
    values: Array = VALUES.copy()
    values[list(rows), 3] = np.nan
    return values


def at(address: int, values: Array) -> builders.Tensor:
    return replace(encode(values), address=address)


def told(dump: Dump) -> dict[str, Finding]:
    return {finding.op.op_type: finding for finding in dump.ask().findings}


def test_memory_that_is_used_again_belongs_to_its_last_writer(dump: Dump) -> None:
    dump.run("MatMul", [at(0x9000, VALUES)], [at(0x1000, with_nan(1))])
    dump.run("Relu", [at(0x9000, VALUES)], [at(0x1000, VALUES + 1)])
    dump.run("Add", [at(0x1000, with_nan(2) + 1)], [at(0x5000, with_nan(2, 3))])
    found = told(dump)
    assert {k: str(f.verdict) for k, f in found.items()} == {"MatMul": "origin", "Add": "handoff"}
    assert found["Add"].evidence[:1] == ("own_inputs",)
    assert "but Relu_op wrote a clean tensor" in render(found["Add"].reason)
    assert dump.ask().findings[0].op.op_type == "MatMul"


def test_a_run_whose_addresses_lead_astray_is_read_without_them(dump: Dump) -> None:
    # Every tensor lies at one address, so each read seems to be of the last thing written.
    for number in range(6):
        dump.run(f"Abs{number}", [at(0x1000, VALUES)], [at(0x1000, VALUES + number)])
    dump.run("MatMul", [at(0x1000, VALUES)], [at(0x1000, with_nan(1))])
    dump.run("Cos", [at(0x1000, VALUES + 2)], [at(0x1000, VALUES + 7)])
    dump.run("Sin", [at(0x1000, VALUES + 3)], [at(0x1000, VALUES + 8)])
    dump.run("Add", [at(0x1000, with_nan(1))], [at(0x1000, with_nan(1, 2))])
    found = told(dump)
    assert str(found["Add"].verdict) == "propagated"
    assert found["Add"].reason.parameters["producer"] == "MatMul_op"
    assert found["Add"].reason.parameters["evidence"] == "bytes"


def test_an_address_that_equal_bytes_contradict_is_told(dump: Dump) -> None:
    # Several reads that agree with their addresses, and one that does not.
    for number in range(1, 7):
        dump.run(
            f"Abs{number}", [at(0x9000, VALUES)], [at(0x2000 + 0x100 * number, VALUES + number)]
        )
        dump.run(
            f"Neg{number}", [at(0x2000 + 0x100 * number, VALUES + number)], [at(0x8000, -VALUES)]
        )
    dump.run("MatMul", [at(0x9000, VALUES)], [at(0x1000, with_nan(1))])
    dump.run("Log", [at(0x9000, VALUES)], [at(0x4000, with_nan(5))])
    dump.run("Add", [at(0x1000, with_nan(5))], [at(0x5000, with_nan(5, 6))])
    add = told(dump)["Add"]
    assert (str(add.verdict), add.reason.parameters["producer"]) == ("propagated", "MatMul_op")
    assert render(add.reason).endswith("Weaker evidence names another producer: Log_op.")
    assert render(add.reason, "zh").endswith("较弱的依据指向另一个生产者：Log_op。")


def test_outputs_alone(dump: Dump) -> None:
    dump.run("MatMul", [], [with_nan(1)])
    dump.run("Add", [], [with_nan(1, 2)])
    assert dump.verdicts() == {"MatMul": "unknown_inputs", "Add": "propagated"}
    assert told(dump)["Add"].evidence == ("order",)


def test_inputs_alone(dump: Dump) -> None:
    dump.run("MatMul", [VALUES], [])
    dump.run("Add", [with_nan(1)], [])
    dump.run("Mul", [with_nan(1, 2)], [])
    assert dump.verdicts() == {"Add": "bad_input", "Mul": "propagated"}
    assert "the operator that wrote this input may be the one at fault" in render(
        told(dump)["Add"].reason
    )


@pytest.mark.parametrize("late_us", [-50_000_000, 0, 50_000_000])
def test_a_rank_that_received_comes_after_the_one_that_sent(dump: Dump, late_us: int) -> None:
    dump.run("MatMul", [VALUES], [with_nan(1)], device=0, late_us=late_us)
    dump.run("HcomAllReduce", [with_nan(1)], [with_nan(1)], device=0, late_us=late_us)
    dump.run("HcomAllReduce", [VALUES], [with_nan(1)], device=1)
    findings = dump.ask().findings
    assert [(f.op.op_type, f.op.device, str(f.verdict)) for f in findings] == [
        ("MatMul", 0, "origin"),
        ("HcomAllReduce", 1, "received"),
        ("HcomAllReduce", 0, "propagated"),
    ]
    assert "the bad values came from rank 0." in render(findings[1].reason)


def causes(dump: Dump, *ranks: str) -> dict[tuple[str, int], tuple[str, int] | None]:
    """Which finding each one descends from, as (type, rank), out of the report on some ranks."""
    store = dump.root.parent / "s.db"
    run("scan", dump.root, "--store", store)
    chosen = [word for rank in ranks for word in ("--rank", rank)]
    ended = run("report", "--json=-", "--store", store, *chosen)
    findings = json.loads(ended.out)["findings"]
    named = {f["rank"]: (f["op_type"], f["device"]) for f in findings}
    assert len(set(named.values())) == len(named)
    return {named[f["rank"]]: named.get(f["caused_by"]) for f in findings}


def test_what_was_received_descends_from_what_the_other_rank_sent(dump: Dump) -> None:
    dump.run("MatMul", [VALUES], [with_nan(1)], device=2)
    for device in range(3):
        given = with_nan(1) if device == 2 else VALUES
        dump.run("HcomAllReduce", [given], [with_nan(1, 2)], device=device)
    assert causes(dump) == {
        ("MatMul", 2): None,
        ("HcomAllReduce", 0): ("HcomAllReduce", 2),
        ("HcomAllReduce", 1): ("HcomAllReduce", 2),
        ("HcomAllReduce", 2): ("MatMul", 2),
    }
    # The rank that sent it was filtered out.
    assert causes(dump, "0", "1") == {("HcomAllReduce", 0): None, ("HcomAllReduce", 1): None}
    store = dump.root.parent / "s.db"
    traced = run("trace", "--store", store, "--rank", "1", "--json=-")
    assert traced.status == 0, traced.err


def test_a_message_descends_from_its_send(dump: Dump) -> None:
    dump.run("MatMul", [VALUES], [with_nan(1)], device=0)
    dump.run("HcomSend", [with_nan(1)], [], device=0)
    dump.run("HcomReceive", [], [with_nan(1)], device=1)
    assert causes(dump)["HcomReceive", 1] == ("HcomSend", 0)


def test_a_value_at_the_limit_descends_from_the_rank_that_sent_it(dump: Dump) -> None:
    limit = np.where(VALUES > 2, np.float16(65504), VALUES)
    dump.run("MatMul", [VALUES], [limit], device=1)
    dump.run("HcomAllReduce", [limit], [limit], device=1)
    dump.run("HcomAllReduce", [VALUES], [limit], device=0)
    received = next(f for f in dump.ask().findings if str(f.verdict) == "received")
    assert received.op.device == 0
    sent = [f.op.op_id for f in dump.ask().findings]
    assert received.caused_by is not None
    assert received.caused_by not in sent  # it only passes the value on, which is no finding


def test_what_a_rank_that_is_not_there_sent_descends_from_nothing_known(dump: Dump) -> None:
    for device in (0, 2):
        dump.run("HcomAllReduce", [VALUES], [with_nan(1)], device=device)
    assert [f.caused_by for f in dump.ask().findings] == [None, None]


@pytest.mark.parametrize("late_us", [-50_000_000, 50_000_000])
def test_without_an_exchange_ranks_stand_by_step_and_number(dump: Dump, late_us: int) -> None:
    dump.run("MatMul", [VALUES], [with_nan(1)], device=1, step=0)
    dump.run("MatMul", [VALUES], [with_nan(1)], device=0, step=0, late_us=late_us)
    dump.run("MatMul", [VALUES], [with_nan(1)], device=0, step=1, late_us=-late_us)
    assert [(f.op.step, f.op.device) for f in dump.ask().findings] == [(0, 0), (0, 1), (1, 0)]


def test_a_sum_of_finite_values_that_overflows_is_an_origin_on_each_rank(dump: Dump) -> None:
    large = np.where(VALUES > 2, np.float16(40000), VALUES)
    with np.errstate(over="ignore"):
        total = large + large
    for device in range(2):
        dump.run("HcomAllReduce", [large], [total], device=device)
    assert [str(f.verdict) for f in dump.ask().findings] == ["origin", "origin"]


def test_a_rank_that_is_not_there_may_have_sent_it(dump: Dump) -> None:
    for device in (0, 2):
        dump.run("HcomAllReduce", [VALUES], [with_nan(1)], device=device)
    first, second = dump.ask().findings
    assert {str(first.verdict), str(second.verdict)} == {"received"}
    assert "missing: rank 1" in render(first.reason)


def test_an_earlier_step_is_named_instead_of_data(dump: Dump) -> None:
    dump.run("MatMul", [VALUES], [with_nan(1)], step=0)
    dump.run("Add", [with_nan(2)], [with_nan(2, 3)], step=1)
    add = told(dump)["Add"]
    assert str(add.verdict) == "bad_input"
    assert "it came from before, and step 0 of this rank was bad already" in render(add.reason)
