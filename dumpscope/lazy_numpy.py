"""NumPy, imported when something of it is first used.

Importing it takes a quarter of the time in which a scan starts, and where the kernel in C is there
nothing of it is needed for a clean tensor of floats, nor for one of integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["np"]

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumPy:
        """Has everything that the module has."""

        def __getattr__(self, name: str) -> Any:
            import numpy  # noqa: ICN001 - the name is taken

            # Asked for once: then it is an attribute of this object.
            value = getattr(numpy, name)
            setattr(self, name, value)
            return value

    np = _NumPy()
