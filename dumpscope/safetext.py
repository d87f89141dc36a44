r"""Make any text safe for the place where it is shown.

Operator names, file names and messages come out of dumps: they may hold control characters,
terminal escape sequences, bidirectional overrides, bytes that were not UTF-8 (lone surrogates)
or spreadsheet formulas. Nothing here loses information silently: what cannot be shown is
written as a visible escape (`\x1b`, `\u202e`).
"""

from __future__ import annotations

import unicodedata

from dumpscope.regexes import regex

__all__ = [
    "CELL_TEXT_LIMIT",
    "count_cells",
    "escape_json_text",
    "guard_formula",
    "is_formula",
    "make_ascii",
    "make_cell_text",
    "make_printable",
]

CELL_TEXT_LIMIT = 32_767
"""Characters that one spreadsheet cell holds (ECMA-376, Excel's specification and limits)."""

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# What starts a formula in a spreadsheet, with the full-width forms that East Asian versions take.
_FORMULA_STARTS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")

# Excel decodes _xHHHH_ in a text to the character of that code, so "mul_x1024_y" would change.
_CELL_ESCAPE = regex(r"_(?=x[0-9A-Fa-f]{4}_)")


def make_printable(text: str) -> str:
    r"""Replace every character that does not print by a visible escape.

    Covers control and format characters (escape sequences, bidirectional and zero-width
    controls), line and paragraph separators, surrogates and code points without a character.
    The result is valid UTF-8, is one line, and `make_printable` leaves it as it is.

    >>> make_printable("Add\x1b[31m\u202e")
    'Add\\x1b[31m\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or unicodedata.category(character) == "Zs"
        else _escape(character)
        for character in text
    )


def count_cells(text: str) -> int:
    """Return how many cells of a terminal a text takes: two for each Chinese character.

    >>> count_cells("扫描 A")
    6
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF")
        for one in text
    )


def make_ascii(text: str) -> str:
    """Like `make_printable`, and characters outside ASCII become escapes too."""
    text = make_printable(text)
    if text.isascii():
        return text
    return "".join(c if c.isascii() else _escape(c) for c in text)


def is_formula(text: str) -> bool:
    """Whether a spreadsheet might run the text as a formula when it is typed or imported."""
    return text.lstrip(" \u00a0\u3000").startswith(_FORMULA_STARTS)


def guard_formula(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would run as a formula."""
    return "'" + text if is_formula(text) else text


def make_cell_text(text: str) -> str:
    """Make a text fit for a workbook cell: printable, at most 32,767 characters, kept as it is.

    Without it one control character leaves a workbook that does not open.
    """
    text = make_printable(text)
    if "_x" in text:
        text = _CELL_ESCAPE.sub("_x005F_", text)
    if len(text) > CELL_TEXT_LIMIT:
        text = text[: CELL_TEXT_LIMIT - 1] + "\u2026"
    return text


def escape_json_text(document: str) -> str:
    r"""Escape, in finished JSON text, what is not safe to print or not valid UTF-8.

    Such characters occur in JSON only inside strings, so that a `\uXXXX` means the same: a
    parser gets the original text back, lone surrogates included.
    """
    # JSON allows them raw, but they break strict UTF-8 (surrogates), line based tools (separators,
    # C1) or the look of a terminal (bidirectional controls, characters of no width or no font).
    unsafe = {
        ord(character): _escape_in_json(character)
        for character in set(document)
        if not character.isprintable()
        and character != "\n"
        and unicodedata.category(character) != "Zs"
    }
    return document.translate(unsafe) if unsafe else document


def _escape_in_json(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def _escape(character: str) -> str:
    r"""Return the visible form of a character; bytes kept by surrogateescape become `\xNN`."""
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        return short
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"
