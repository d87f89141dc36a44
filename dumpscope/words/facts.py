"""Read the parameters of a reason without ever failing, and write numbers as engineers do."""

from __future__ import annotations

import math

from dumpscope.model import Reason
from dumpscope.safetext import make_printable

__all__ = [
    "Facts",
    "format_count",
    "format_number",
    "list_kinds",
    "name_operator",
    "normalises_rows",
    "tell_name",
]


class Facts:
    """The parameters of a reason. What is missing or of another type reads as not known."""

    __slots__ = ("_parameters", "code")

    def __init__(self, reason: Reason) -> None:
        self.code = reason.code
        self._parameters = reason.parameters

    def text(self, key: str) -> str:
        """Return a parameter as printable text, empty when it is not known."""
        value = self._parameters.get(key)
        if value is None or value is False:
            return ""
        if isinstance(value, str):
            return make_printable(value)
        if isinstance(value, float):
            return format_number(value)
        return str(value)

    def count(self, key: str) -> int | None:
        """Return a whole number, or `None` when it is not known."""
        value = self._parameters.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return None

    def amount(self, key: str) -> int:
        """Return a whole number, 0 when it is not known."""
        return self.count(key) or 0

    def number(self, key: str) -> float | int | None:
        """Return a number, or `None` when it is not known."""
        value = self._parameters.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        return None

    def flag(self, key: str) -> bool:
        """Return whether a parameter is set to something true."""
        return bool(self._parameters.get(key))

    def given(self, key: str) -> bool:
        """Return whether a parameter is set: a number, 0 too, a text, or true."""
        value = self._parameters.get(key)
        return value is not None and value is not False and value != ""

    def described(self) -> str:
        """Return code and parameters as they are: the sentence of a code without a template."""
        words = self.code.replace("_", " ")
        known = [f"{key} {self.text(key)}" for key in self._parameters if self.text(key)]
        text = f"{words} ({', '.join(known)})" if known else words
        return make_printable(text)


def name_operator(facts: Facts, type_key: str, name_key: str) -> str:
    """Name an operator by type and name, by its name alone where that begins with the type."""
    op_type, op_name = facts.text(type_key), facts.text(name_key)
    if op_name.startswith(op_type):
        return op_name
    return f"{op_type} {op_name}".strip()


def normalises_rows(facts: Facts) -> bool:
    """Whether the operator divides a row by its own sum, which of a masked row is 0."""
    op_type = facts.text("op_type").lower()
    return "softmax" in op_type or "attention" in op_type


def tell_name(facts: Facts) -> str:
    """Return a tensor's own name where it says more than role and index ("output.0")."""
    name = facts.text("tensor_name")
    said = f"{facts.text('role')}.{facts.text('index')}"
    return "" if name.replace("_", ".") == said else name


def list_kinds(facts: Facts) -> list[tuple[int, str]]:
    """Return (count, parameter) of what is bad in the deciding tensor, saturated values last.

    Saturated values are told only where nothing is NaN or Inf: beside those they say nothing.
    """
    found = [(facts.amount(key), key) for key in ("nan", "posinf", "neginf") if facts.amount(key)]
    if not found and facts.amount("saturated"):
        found = [(facts.amount("saturated"), "saturated")]
    return found


def format_count(count: int) -> str:
    """Write a count with thousands separators.

    >>> format_count(33554432)
    '33,554,432'
    """
    return f"{count:,}"


def format_number(value: float | int) -> str:
    """Write a measured number with at most six digits, without an exponent where it reads well.

    >>> [format_number(x) for x in (65504.0, 412.5, 3.3895313892515355e38, -0.00012, 1e-7)]
    ['65,504', '412.5', '3.38953e+38', '-0.00012', '1e-07']
    """
    if isinstance(value, int):
        return format_count(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    magnitude = abs(value)
    if magnitude and not 1e-4 <= magnitude < 1e9:
        return f"{value:.6g}"
    if value == int(value):
        return f"{int(value):,}"
    if magnitude >= 1e5:
        return f"{value:,.0f}"
    return f"{value:.6g}"
