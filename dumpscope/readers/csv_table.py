"""CSV files with a header, read row by row in bounded memory."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.readers.array_records import check_shape
from dumpscope.readers.text_lines import TextLine, stream_lines
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["CsvTable", "read_shape"]

Parsed = TypeVar("Parsed")

_MOST_REFUSED = 50
_SHAPE = regex(r"[(\[]?\s*(?:[0-9]{1,18}(?:\s*[,x]\s*[0-9]{1,18}){0,31}\s*[,x]?)?\s*[)\]]?")


class CsvTable:
    """The rows of a CSV file with a header, streamed; a damaged row does not end it.

    Parameters
    ----------
    source
        The file.
    required
        Names of columns without which it is another file, in lower case.

    Attributes
    ----------
    columns
        Name in lower case -> position. Where a name repeats the first one counts.

    Raises
    ------
    DumpReadError
        There is no header, or it lacks a required column.
    """

    def __init__(self, source: DumpSource, required: Sequence[str]) -> None:
        self._path = source.file.relative
        self._lines = stream_lines(source)
        header = next(self._lines, None)
        if header is None or not header.text.strip():
            raise TruncatedDumpError(
                "expected a header line, found none: the file is empty", path=self._path, offset=0
            )
        names = [cell.strip().lower() for cell in self._split(header)]
        self.columns: dict[str, int] = {}
        for at, column in enumerate(names):
            self.columns.setdefault(column, at)
        missing = [column for column in required if column not in self.columns]
        if missing:
            raise CorruptDumpError(
                f"expected the columns {', '.join(missing)} too, found {header.text!r:.200}",
                path=self._path,
                offset=0,
            )
        self._width = len(names)

    def rows(self) -> Iterator[tuple[int, list[str]] | DumpReadError]:
        """Yield each row with its offset; an error in place of a line that is no row."""
        for line in self._lines:
            if not line.text.strip():
                continue
            try:
                cells = [cell.strip() for cell in self._split(line)]
            except CorruptDumpError as error:
                yield error
                continue
            if not line.ended and len(cells) < self._width:
                yield TruncatedDumpError(
                    f"expected {self._width} cells in the last line, found {len(cells)}: its "
                    "writer stopped there, what stands before was read",
                    path=self._path,
                    offset=line.offset,
                )
                continue
            yield line.offset, cells

    def parse_rows(
        self, parse: Callable[[Sequence[str]], Parsed]
    ) -> Iterator[Parsed | DumpReadError]:
        """Yield what `parse` makes of each row; an error in place of one that is damaged.

        Raises
        ------
        CorruptDumpError
            So many rows are that `parse` refuses that it is no use to go on.
        """
        refused = 0
        for row in self.rows():
            if isinstance(row, DumpReadError):
                yield row
                continue
            offset, cells = row
            try:
                parsed = parse(cells)
            except (ValueError, CorruptDumpError) as error:
                refused += 1
                yield self.damage(offset, error)
                if refused >= _MOST_REFUSED:
                    why = f"so are {refused - 1} before it: gave up"
                    raise self.damage(offset, why) from error
                continue
            yield parsed

    def cell(self, cells: Sequence[str], *names: str) -> str:
        """Return the cell of the first of these columns that is there, `""` without one."""
        for name in names:
            at = self.columns.get(name)
            if at is not None:
                return cells[at] if at < len(cells) else ""
        return ""

    def damage(self, offset: int, why: object) -> CorruptDumpError:
        """Return the fault of a row."""
        return CorruptDumpError(f"a row is damaged: {why}", path=self._path, offset=offset)

    def _split(self, line: TextLine) -> list[str]:
        if line.cut:
            raise self.damage(line.offset, "it is longer than any row")
        try:
            return next(csv.reader([line.text]), [])
        except csv.Error as error:
            raise self.damage(line.offset, error) from error


def read_shape(text: str) -> tuple[int, ...]:
    """Read `(2, 3)`, `(2,3)`, `2x3` or `()`.

    Raises
    ------
    ValueError, CorruptDumpError
        It is no shape, or one that no tensor has.
    """
    if not _SHAPE.fullmatch(text):
        raise ValueError(f"expected a shape like (2, 3), found {text!r:.40}")
    shape = tuple(int(dim) for dim in re.findall(r"[0-9]+", text))
    check_shape(shape)
    return shape
