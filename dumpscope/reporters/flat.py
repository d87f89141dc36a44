"""CSV: one row per finding, with the tensor that decided it.

RFC 4180 with CRLF line ends. The header is the columns' names, which never change. A text that a
spreadsheet would run as a formula begins with an apostrophe; a file with text beyond ASCII
begins with a byte order mark, because Excel takes it for another encoding otherwise. Numbers are
written so that reading them gives the same number; non-finite ones are nan, inf and -inf.
"""

from __future__ import annotations

import csv
import io
from typing import BinaryIO

from dumpscope.model import Scan
from dumpscope.reporters.tables import TABLES, Cell
from dumpscope.safetext import guard_formula, make_printable

__all__ = ["CsvReporter", "format_cell", "write_table"]

_BOM = b"\xef\xbb\xbf"


class CsvReporter:
    """`--csv`: the findings as a flat table."""

    name = "csv"
    suffix = "csv"
    option = "--csv"

    def write(self, scan: Scan, target: BinaryIO, *, limit: int | None, lang: str) -> None:
        """Write all findings unless a limit is given."""
        write_table("findings", scan, target, limit=limit or 0, lang=lang)


def write_table(
    name: str, scan: Scan, target: BinaryIO, *, limit: int = 0, lang: str = "en"
) -> None:
    """Write one table of the column dictionary as CSV; `limit` 0 is all rows."""
    table = TABLES[name]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.name for column in table.columns])
    for row in table.compute(scan, limit=limit, lang=lang):
        writer.writerow([format_cell(value) for value in row])
    content = text.getvalue()
    if not content.isascii():
        target.write(_BOM)
    target.write(content.encode())


def format_cell(value: Cell) -> str:
    """Write one value: empty when it is not known, numbers so that they read back the same."""
    if value is None:
        return ""
    if isinstance(value, str):
        return guard_formula(make_printable(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    # numpy's numbers are numbers too, but their repr names their type.
    return repr(float(value)) if isinstance(value, float) else str(int(value))
