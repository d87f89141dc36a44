"""What a reporter is. Built-in ones are found through the same entry points as anyone's.

The entry-point group is `dumpscope.reporters`: each entry names a class without arguments. A
reporter writes bytes into a file that is already open; whether that is a file on disk, written
atomically, or stdout is none of its business (see delivery.py).
"""

from __future__ import annotations

from typing import BinaryIO, Protocol, runtime_checkable

from dumpscope.model import Scan

__all__ = ["ENTRY_POINT_GROUP", "Reporter"]

ENTRY_POINT_GROUP = "dumpscope.reporters"


@runtime_checkable
class Reporter(Protocol):
    """One kind of report.

    `name` is what it is called ("csv"), `suffix` the end of its default file name
    ("csv": dumpscope-report.csv), `option` how the command line asks for it ("--csv").
    A reporter whose class has `for_machines = True` speaks English unless a language was asked
    for by name; the others follow the locale. One whose class has `shows_history = True` is given
    `Scan.history` by `dumpscope report`, which takes its time in a large scan.
    """

    name: str
    suffix: str
    option: str

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write the report of `scan`.

        Parameters
        ----------
        target
            Where the bytes go; may not be seekable.
        limit
            Findings to list at most: 0 for all, `None` for the reporter's own default.
        lang
            "en" or "zh".
        """
