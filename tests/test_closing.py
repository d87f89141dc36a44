"""What is closed at the end of a `with` block, whatever happens in it."""

from __future__ import annotations

import pytest

from dumpscope.closing import Closing


class Door(Closing):
    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed: int = 0

    def close(self) -> None:
        self.closed += 1


def test_the_end_of_the_block_closes() -> None:
    door = Door()
    with door as entered:
        assert entered is door
        assert door.closed < 1
    assert door.closed == 1


def test_an_exception_closes_and_goes_on() -> None:
    door = Door()
    with pytest.raises(ZeroDivisionError), door:
        raise ZeroDivisionError
    assert door.closed == 1


def test_what_has_nothing_to_close_with_says_so() -> None:
    with pytest.raises(NotImplementedError), Closing():
        pass
