from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.overflow import describe_status


@pytest.mark.parametrize(
    ("bit", "word"),
    [
        (0x8, "negating"),
        (0x10, "integer add"),
        (0x20, "floating"),
        (0x80, "negative floating point to unsigned"),
        (0x100, "to float16"),
        (0x400, "CUBE"),
    ],
)
def test_bits_of_the_ai_core(bit: int, word: str) -> None:
    (text,) = describe_status("AIC", (bit,))
    assert text.startswith(f"0x{bit:x} ")
    assert word in text


def test_bits_are_ored() -> None:
    texts = describe_status("AIC", (272,))
    assert [text.split()[0] for text in texts] == ["0x10", "0x100"]


def test_unknown_bits_are_named_as_such() -> None:
    assert describe_status("AIC", (0x22,)) == (
        "0x2 unknown bit",
        "0x20 floating-point overflow",
    )


def test_further_words_have_no_table() -> None:
    texts = describe_status("AIC", (0x20, 0, 0x10))
    assert texts[0].startswith("0x20 floating")
    assert texts[1:] == ("0x10 unknown bit of word 2",)


@pytest.mark.parametrize(
    ("kind", "status", "start", "words"),
    [
        ("DHA", 0x900, "0x900 ", "overflow"),
        ("DHA", 0xA00, "0xa00 ", "underflow"),
        ("DHA", 0xB00, "0xb00 ", "source NaN"),
        ("DHA", 0xC00, "0xc00 ", "destination NaN"),
        ("DHA", 0xD00, "0xd00 ", "source NaN to a destination NaN"),
        ("L2", 0x10000, "0x10000 ", "overflow"),
        ("L2", 0x20000, "0x20000 ", "underflow"),
        ("L2", 0x30000, "0x30000 ", "source NaN"),
        ("L2", 0x40000, "0x40000 ", "destination NaN"),
        ("L2", 0x50000, "0x50000 ", "source NaN to a destination NaN"),
    ],
)
def test_codes_of_atomic_adds(kind: str, status: int, start: str, words: str) -> None:
    (text,) = describe_status(kind, (status,))
    assert text.startswith(start)
    assert words in text


def test_atomic_add_without_a_known_code() -> None:
    assert describe_status("DHA", (2,)) == ("0x2 unknown bit",)
    assert describe_status("DHA", (0x902,))[1:] == ("0x2 unknown bit",)
    assert describe_status("L2", (0x60000,)) == (
        "0x20000 unknown bit",
        "0x40000 unknown bit",
    )


@pytest.mark.parametrize("kind", ["AIV", "AICPU", "SDMA", "12"])
def test_units_without_a_table(kind: str) -> None:
    assert describe_status(kind, (0x20, 1)) == ()


@pytest.mark.parametrize("kind", ["AIC", "DHA", "L2"])
def test_zero_says_nothing(kind: str) -> None:
    assert describe_status(kind, (0,)) == ()
    assert describe_status(kind, ()) == ()


@given(st.sampled_from(["AIC", "DHA", "L2"]), st.lists(st.integers(0, (1 << 64) - 1), max_size=4))
def test_every_text_begins_with_a_bit_and_none_is_lost(kind: str, words: list[int]) -> None:
    texts = describe_status(kind, words)
    if words:
        found = 0
        for text in texts:
            if " of word " not in text:
                found |= int(text.split()[0], 16)
        assert found == words[0]
    assert (texts == ()) == (not any(words))
