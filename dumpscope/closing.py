"""What is closed at the end of a `with` block."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Closing"]

Own = TypeVar("Own", bound="Closing")


class Closing:
    """Has a method `close`, which the end of a `with` block calls."""

    __slots__ = ()

    def close(self) -> None:
        """Let go of what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
