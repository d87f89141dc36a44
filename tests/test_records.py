"""Records behave like frozen dataclasses in all that the program relies on."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from pathlib import Path

import pytest

import dumpscope
from dumpscope.model import DumpFile, FileResult, OpRecord, Place, TensorStats, TensorSummary
from dumpscope.records import record


@record(frozen=True, slots=True)
class Single:
    value: int


PLACE = Place(source=1, run="20260109173000", step=3, device_id=0)
FILE = DumpFile("/d/a", "a", "a", 8, 1, 2, 3, PLACE)
TENSOR = TensorSummary("output", 0, "float16", "ND", (2, 3), stats=TensorStats(count=6, nan=1))
OP = OpRecord("Add", "add1", (TENSOR,), 4, 5, place=PLACE)
SAMPLES = [Single(3), PLACE, FILE, TENSOR, OP, FileResult(FILE, "adump", ops=(OP,))]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_copies_are_equal_and_hash_alike(sample: object) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        loaded = pickle.loads(pickle.dumps(sample, protocol))
        assert loaded == sample
        assert type(loaded) is type(sample)
        assert hash(loaded) == hash(sample)
    assert copy.deepcopy(sample) == sample


def test_fields_are_the_record() -> None:
    changed = dataclasses.replace(PLACE, step=4)
    assert (changed.step, changed.run) == (4, "20260109173000")
    assert changed != PLACE
    assert {PLACE: 1}[Place(1, "20260109173000", 3, 0)] == 1
    assert [field.name for field in dataclasses.fields(Single)] == ["value"]


def test_there_is_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Single(3).other = 4  # type: ignore[attr-defined]


@record(frozen=True, slots=True)
class Secretive:
    name: str
    secret: str = dataclasses.field(repr=False, compare=False)
    found: list[int] = dataclasses.field(default_factory=list, init=False, repr=False)


@record(frozen=False, slots=True)
class Changing:
    """It has a docstring of its own."""

    value: int = 1


def test_what_fields_ask_for_is_kept() -> None:
    shown = Secretive("a", "b")
    assert repr(shown) == "Secretive(name='a')"
    assert shown == Secretive("a", "c")
    assert shown != Secretive("b", "b")
    shown.found.append(1)
    assert shown != Secretive("a", "b")
    assert dataclasses.replace(shown, name="d").found == []
    copied = pickle.loads(pickle.dumps(shown))
    assert (copied.name, copied.secret, copied.found) == ("a", "b", [])


def test_only_frozen_ones_are_keys_and_other_classes_are_never_equal() -> None:
    assert Changing() == Changing(1)
    other: object = Single(1)
    assert Changing() != other
    assert (Changing.__doc__, Single.__doc__) == ("It has a docstring of its own.", "Single")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Changing())


def test_what_is_kept_after_it_was_asked_for_has_a_place_to_be_kept() -> None:
    # `cached_property` writes into the object's dictionary, which a class with slots has not.
    package = Path(dumpscope.__file__).parent
    caching = [
        f"{path.relative_to(package)}: {node.name}"
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and "cached_property" in {ast.unparse(d) for f in node.body
                                  if isinstance(f, ast.FunctionDef) for d in f.decorator_list}
        and any("slots=True" in ast.unparse(d) for d in node.decorator_list)
    ]  # fmt: skip
    assert caching == []
