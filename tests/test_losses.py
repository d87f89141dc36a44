"""What could not be read is said where it may be at fault, and nobody else is accused for it.

The dumps are written by hand: a division by zero makes the infinities, and its file is damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import Tensor
from dumpscope.causality.losses import Losses, Lost
from dumpscope.model import Finding, Place
from dumpscope.words import render
from handmade import Array, Dump, encode
from op_builders import clean, make_op, tensor, unread

NUMBERS = np.random.default_rng(11).uniform(1, 3, (4, 32)).astype(np.float16)
with np.errstate(divide="ignore"):
    ENDLESS: Array = (NUMBERS / np.float16(0)).astype(np.float16)
    ENDLESS[::2] = -ENDLESS[::2]
ZEROS = np.zeros((4, 32), dtype=np.float16)
SIZE = NUMBERS.nbytes


def at(array: Array, address: int) -> Tensor:
    return replace(encode(array), address=address)


def write_chain(root: Path, addresses: bool) -> Dump:
    """Relu, RealDiv (by zero), Muls, Adds, each reading what the one before wrote."""
    dump = Dump(root)

    def place(array: Array, number: int) -> Tensor:
        return at(array, 0x1000 * (number + 1) if addresses else 0)

    halved = (NUMBERS / np.float16(2)).astype(np.float16)
    doubled = (ENDLESS * np.float16(2)).astype(np.float16)
    dump.run("Relu", [place(NUMBERS, 0)], [place(halved, 1)])
    dump.run("RealDiv", [place(ZEROS, 7), place(halved, 1)], [place(ENDLESS, 2)])
    dump.run("Muls", [place(ENDLESS, 2)], [place(doubled, 3)])
    dump.run("Adds", [place(doubled, 3)], [place(doubled + np.float16(1), 4)])
    return dump


def file_of(dump: Dump, op_type: str) -> Path:
    return next(dump.root.rglob(f"{op_type}.*"))


def cut_head(content: bytes) -> bytes:
    return content[:20]


def cut_output(content: bytes) -> bytes:
    return content[:-SIZE]


def cut_half_of_output(content: bytes) -> bytes:
    return content[: -SIZE // 2]


def only(findings: tuple[Finding, ...], op_type: str) -> Finding:
    return next(f for f in findings if f.op.op_type == op_type)


def test_the_undamaged_chain_has_its_origin(tmp_path: Path) -> None:
    dump = write_chain(tmp_path / "dump", addresses=True)
    assert dump.verdicts() == {"RealDiv": "origin", "Muls": "propagated", "Adds": "propagated"}


def test_an_output_that_was_cut_off_is_seen_at_whoever_read_it(tmp_path: Path) -> None:
    dump = write_chain(tmp_path / "dump", addresses=True)
    file = file_of(dump, "RealDiv")
    file.write_bytes(cut_output(file.read_bytes()))
    answer = dump.ask()
    first = answer.findings[0]
    assert [(f.op.op_type, str(f.verdict)) for f in answer.findings] == [
        ("RealDiv", "origin"), ("Muls", "propagated"), ("Adds", "propagated"),
    ]  # fmt: skip
    assert answer.findings[1].caused_by == first.op.op_id
    assert answer.findings[1].evidence == ("own_inputs", "address")
    told = render(first.reason)
    assert told.startswith("Output 0 has 64 +Inf and 64 -Inf of 128 float16 elements while both")
    assert "its output was not dumped or could not be read" in told.lower()
    # What its own file holds is told as it is there.
    assert [(t.role, t.checked) for t in first.op.tensors] == [
        ("input", True), ("input", True), ("output", False),
    ]  # fmt: skip


def test_the_half_that_is_left_of_an_output_does_not_clear_it(tmp_path: Path) -> None:
    dump = Dump(tmp_path / "dump")
    late: Array = NUMBERS.copy()
    late[3] = np.inf
    dump.run("RealDiv", [at(NUMBERS, 0x1000)], [at(late, 0x2000)])
    dump.run("Muls", [at(late, 0x2000)], [at(late, 0x3000)])
    file = file_of(dump, "RealDiv")
    file.write_bytes(cut_half_of_output(file.read_bytes()))
    assert dump.verdicts() == {"RealDiv": "origin", "Muls": "propagated"}


def test_what_was_read_as_another_shape_still_came_from_the_output_that_was_lost(
    tmp_path: Path,
) -> None:
    dump = Dump(tmp_path / "dump")
    dump.run("RealDiv", [at(NUMBERS, 0x1000)], [at(ENDLESS, 0x2000)])
    dump.run("Muls", [at(ENDLESS.reshape(-1), 0x2000)], [at(ENDLESS, 0x3000)])
    file = file_of(dump, "RealDiv")
    file.write_bytes(cut_output(file.read_bytes()))
    (finding,) = dump.ask().findings
    assert (finding.op.op_type, str(finding.verdict)) == ("Muls", "propagated")
    assert finding.reason.parameters["producer"] == "RealDiv_op"


def test_an_operator_in_place_recorded_after_the_fact_shows_nobody_elses_output(
    tmp_path: Path,
) -> None:
    dump = Dump(tmp_path / "dump")
    dump.run("Relu", [at(NUMBERS, 0x1000)], [at(NUMBERS, 0x2000)])
    dump.run("RealDiv", [at(ENDLESS, 0x2000)], [at(ENDLESS, 0x2000)])
    file = file_of(dump, "Relu")
    file.write_bytes(cut_output(file.read_bytes()))
    assert dump.verdicts() == {"RealDiv": "unknown_inputs"}


@pytest.mark.parametrize("addresses", [True, False])
@pytest.mark.parametrize("damage", [cut_head, lambda _: b"", lambda content: b"\xff" * 64])
def test_a_lost_file_is_named_by_whoever_reads_what_it_wrote(
    tmp_path: Path, addresses: bool, damage: Callable[[bytes], bytes]
) -> None:
    dump = write_chain(tmp_path / "dump", addresses)
    file = file_of(dump, "RealDiv")
    file.write_bytes(damage(file.read_bytes()))
    first = dump.ask().findings[0]
    assert (first.op.op_type, str(first.verdict)) == ("Muls", "bad_input")
    assert render(first.reason).endswith(
        "nothing in what could be read of the dump produced it: the trouble is older than the "
        "dump (data, weights or an earlier step), or lies in an operator that was not dumped or in "
        "what could not be read. 1 operator before it on this rank and step, RealDiv RealDiv_op, "
        "could not be read and may be the one at fault."
    )


def test_without_addresses_an_unread_output_may_have_been_what_was_read(tmp_path: Path) -> None:
    dump = write_chain(tmp_path / "dump", addresses=False)
    file = file_of(dump, "RealDiv")
    file.write_bytes(cut_output(file.read_bytes()))
    first = dump.ask().findings[0]
    assert (first.op.op_type, str(first.verdict)) == ("Muls", "bad_input")
    assert first.reason.parameters["lost"] == 1
    assert first.reason.parameters["lost_name"] == "RealDiv RealDiv_op"


@pytest.mark.parametrize("elsewhere", [{"device": 1}, {"step": 1}, {"late_us": 10**6}])
def test_what_was_lost_elsewhere_or_later_changes_no_sentence(
    tmp_path: Path, elsewhere: dict[str, Any]
) -> None:
    dump = Dump(tmp_path / "dump")
    dump.run("Cast", [NUMBERS], [NUMBERS], **elsewhere)
    dump.run("Muls", [ENDLESS], [ENDLESS * np.float16(2)])
    file_of(dump, "Cast").write_bytes(b"")
    first = only(dump.ask().findings, "Muls")
    assert str(first.verdict) == "bad_input"
    assert "lost" not in first.reason.parameters


def test_losses_are_counted_up_to_an_execution_and_once_per_file() -> None:
    place = Place(run="r", step=0, device_id=0)
    blank = make_op("Cast", [clean()], [unread, unread], at=3, run="r")
    losses = Losses(
        [
            ("r/0/0/Div.net_div.1.1.1764417600000002", place, 0),
            ("r/0/0/Mul.net_mul.1.1.1764417600000009", place, 0),
            ("r/0/0/Sub.net_sub.1.1.1764417600000001", place, 3),  # gave operators
        ],
        [(blank, t) for t in blank.outputs],
    )
    reader = make_op("Relu", [clean()], [clean()], at=5, run="r")
    assert losses.before(reader, addressed=False) == Lost(2, "Cast net/Cast_3")
    assert losses.before(reader, addressed=True) == Lost(1, "Div net_div")
    assert losses.before(replace(reader, start_ns=None), addressed=True) == Lost(2, "Mul net_mul")
    first = make_op("Relu", [clean()], [clean()], at=1, run="r")
    assert losses.before(first, addressed=False) is None
    # Its own output that could not be read is no loss before it, and inputs are none at all.
    own = Losses((), [(blank, blank.outputs[0]), (first, tensor("input", 0, unread))])
    assert own.before(blank, addressed=False) is None


def test_a_file_without_a_name_of_a_dump_may_have_been_anything() -> None:
    place = Place(run="r", step=0, device_id=0)
    losses = Losses([("r/0/0/77218801", place, 0)])
    reader = make_op("Relu", [clean()], [clean()], at=5, run="r")
    assert losses.before(reader, addressed=True) == Lost(1, "77218801")
