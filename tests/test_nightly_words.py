"""Words for CI, diff and trend: the same fields in both languages, and none unused."""

from __future__ import annotations

import re

import pytest

from cli_runs import ROOT
from dumpscope.words.nightly import NIGHTLY_WORDS, nightly_word

FIELD = re.compile(r"\{(\w+)\}")


@pytest.mark.parametrize("key", NIGHTLY_WORDS)
def test_both_languages_have_the_same_fields(key: str) -> None:
    english, chinese = NIGHTLY_WORDS[key]
    assert english
    assert chinese
    assert set(FIELD.findall(english)) == set(FIELD.findall(chinese))


def test_every_word_is_used() -> None:
    reporters = (ROOT / "dumpscope" / "reporters").glob("*.py")
    source = "".join(path.read_text(encoding="utf-8") for path in reporters)
    built = {key for key in NIGHTLY_WORDS if key.startswith("change_")}
    unused = {key for key in NIGHTLY_WORDS if f'"{key}"' not in source} - built
    assert not unused


def test_values_are_put_in_as_they_are() -> None:
    assert nightly_word("tolerated", tolerance="{sentence}", sentence="x").startswith("tolerated")
