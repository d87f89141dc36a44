"""Regular expressions that are compiled when they are first used.

Compiling all that the package has took a tenth of the time in which a scan starts, and no scan
needs more than a few: those of the formats that it meets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

__all__ = ["regex"]

if TYPE_CHECKING:
    from re import compile as regex
else:

    class regex:  # noqa: N801 - stands for a function
        """What `re.compile` returns, made when something is first asked of it."""

        def __init__(self, pattern: str | bytes, flags: int = 0) -> None:
            self._made_of = pattern, flags

        def __getattr__(self, name: str) -> Any:
            # Asked for once: then the compiled expression's own method is this object's.
            value = getattr(re.compile(*self._made_of), name)
            setattr(self, name, value)
            return value
