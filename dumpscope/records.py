"""Dataclasses of which millions are made: frozen for the type checker, plain while running.

`@dataclass(frozen=True)` sets every field with a call of `object.__setattr__`, which makes a
record of twenty fields ten times as expensive as plain assignments do: a quarter of the time of
a scan of small files. `@record(frozen=True, slots=True)` is the same to the type checker, which
refuses assignments, and has the same equality, hash and `replace`. Pickled it is a call with all
fields, which takes a third of the time that a dataclass with slots takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass, fields
    from operator import attrgetter

    def record(*, frozen: bool, slots: bool) -> Any:
        """Make a class a dataclass without the checks on assignment that freezing brings."""
        make = dataclass(slots=slots, unsafe_hash=frozen)

        def decorate(cls: type) -> type:
            made = make(cls)
            names = [field.name for field in fields(made)]
            if len(names) > 1:  # of one name `attrgetter` makes no tuple
                values_of = attrgetter(*names)
                made.__reduce__ = lambda self: (type(self), values_of(self))
            return made

        return decorate
