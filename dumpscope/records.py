"""The package's dataclasses: the same to the type checker and to callers, cheaper to make.

`@record(frozen=True, slots=True)` is `@dataclass(frozen=True, slots=True)` with three savings:

- While running, nothing refuses assignments. Freezing sets every field with a call of
  `object.__setattr__`, which makes an object of twenty fields ten times as expensive: a quarter of
  the time of a scan of small files. The type checker still refuses them.
- Comparing, hashing and printing are shared functions. `dataclass` writes and compiles new ones for
  every class, a millisecond each: of about a hundred classes that is a tenth of the start-up.
- Pickled it is a call with all fields, which takes a third of the time.

Fields, `replace`, equality (of objects of one class) and hash are those of a dataclass.
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
        """Make a class a dataclass; a frozen one can be hashed."""
        make = dataclass(slots=slots, eq=False, repr=False)

        def decorate(cls: type) -> type:
            # Without a docstring `dataclass` puts one together out of the signature, slowly.
            cls.__doc__ = cls.__doc__ or cls.__name__
            made = make(cls)
            members = fields(made)
            values_of = _take(field.name for field in members if field.compare)
            given = _take(field.name for field in members if field.init)
            shown = tuple(field.name for field in members if field.repr)

            def is_equal(self: Any, other: object) -> bool:
                if type(other) is not type(self):
                    return NotImplemented
                return values_of(self) == values_of(other)

            def say(self: Any) -> str:
                said = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
                return f"{type(self).__qualname__}({said})"

            made.__eq__ = is_equal
            made.__hash__ = (lambda self: hash(values_of(self))) if frozen else None
            made.__reduce__ = lambda self: (type(self), given(self))
            if made.__repr__ is object.__repr__:
                made.__repr__ = say
            return made

        return decorate

    def _take(names: Any) -> Any:
        """Return what gives some fields of an object as a tuple."""
        names = tuple(names)
        if len(names) > 1:
            return attrgetter(*names)
        if names:  # of one name `attrgetter` makes no tuple
            of_one = attrgetter(names[0])
            return lambda self: (of_one(self),)
        return lambda self: ()
