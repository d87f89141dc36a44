"""The file behind `--rank-map`: coordinates rank by rank.

JSON::

    {"0": {"tp": 0, "pp": 0, "dp": 0}, "1": {"tp": 1, "pp": 0, "dp": 0}}

or CSV, with any of the columns tp, pp, dp, cp, ep behind the rank::

    rank,tp,pp,dp
    0,0,0,0
    1,1,0,0

Every rank has the same dimensions. Where tp, pp and dp are all there, they must tell the ranks
apart, with cp and ep where those are given.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping

from dumpscope.errors import ConfigError
from dumpscope.ranks.parallelism import DIMENSIONS, Topology

__all__ = ["load_rank_map"]

_MOST_BYTES = 64 << 20
_LARGEST = 1 << 24
_TELL_APART = frozenset({"tp", "pp", "dp"})


def load_rank_map(path: str) -> Topology:
    """Read a rank map.

    Raises
    ------
    ConfigError
        It cannot be read, is neither of the two forms, or contradicts itself.
    """
    text = _read_text(path)
    is_json = text.lstrip().startswith(("{", "["))
    rows = _json_rows(path, text) if is_json else _csv_rows(path, text)
    return Topology(_check_rows(path, rows))


def _read_text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise ConfigError(f"{path}: the rank map cannot be read: {reason}") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path}: a rank map has no more than {_MOST_BYTES >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} at 0x{error.start:x}: expected a rank map in UTF-8, JSON or CSV"
        ) from error


Row = tuple[str, str, Mapping[str, object]]
"""Where it stands, the rank as written, and its coordinates."""


def _json_rows(path: str, text: str) -> Iterable[Row]:
    try:
        loaded = json.loads(text, object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: the rank map is no JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: expected an object of ranks, found a list")
    for rank, place in loaded.items():
        if not isinstance(place, dict):
            raise ConfigError(
                f'{path}: rank {rank!a}: expected an object like {{"tp": 0, "pp": 0, "dp": 0}}'
            )
        yield f"rank {rank!a}", rank, place


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice!a} is there twice")
    return found


def _csv_rows(path: str, text: str) -> Iterable[Row]:
    reader = csv.reader(io.StringIO(text))
    try:
        head = [name.strip().lower() for name in next(reader, [])]
        if "rank" not in head or len(set(head)) < len(head):
            raise ConfigError(
                f"{path}: line 1: expected a header like rank,tp,pp,dp, found {','.join(head)!a}"
            )
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            where = f"line {reader.line_num}"
            if len(row) != len(head):
                raise ConfigError(f"{path}: {where}: expected {len(head)} cells, found {len(row)}")
            cells = dict(zip(head, (cell.strip() for cell in row), strict=True))
            yield where, cells.pop("rank"), cells
    except csv.Error as error:
        raise ConfigError(f"{path}: line {reader.line_num}: {error}") from error


def _check_rows(path: str, rows: Iterable[Row]) -> dict[int, dict[str, int]]:
    coordinates: dict[int, dict[str, int]] = {}
    first: frozenset[str] | None = None
    for where, written, place in rows:
        rank = _whole(written)
        if rank is None:
            raise ConfigError(f"{path}: {where}: expected a rank, found {written!a}")
        if rank in coordinates:
            raise ConfigError(f"{path}: {where}: rank {rank} is there twice")
        found: dict[str, int] = {}
        for name, value in place.items():
            if name not in DIMENSIONS:
                raise ConfigError(
                    f"{path}: {where}: {name!a} is no dimension; known: {', '.join(DIMENSIONS)}"
                )
            number = _whole(value)
            if number is None:
                raise ConfigError(
                    f"{path}: {where}: {name}: expected a number from 0, found {value!a}"
                )
            found[name] = number
        if not found:
            raise ConfigError(f"{path}: {where}: no dimension is given; known: "
                              f"{', '.join(DIMENSIONS)}")  # fmt: skip
        if first is None:
            first = frozenset(found)
        if first != found.keys():
            raise ConfigError(
                f"{path}: {where}: expected {', '.join(sorted(first))} as for the ranks before, "
                f"found {', '.join(sorted(found))}"
            )
        coordinates[rank] = found
    if not coordinates:
        raise ConfigError(f"{path}: the rank map names no rank")
    _check_unique(path, coordinates)
    return coordinates


def _check_unique(path: str, coordinates: Mapping[int, Mapping[str, int]]) -> None:
    seen: dict[tuple[tuple[str, int], ...], int] = {}
    for rank, place in coordinates.items():
        if not place.keys() >= _TELL_APART:
            return
        other = seen.setdefault(tuple(sorted(place.items())), rank)
        if other != rank:
            same = " ".join(f"{name}={place[name]}" for name in DIMENSIONS if name in place)
            advice = "correct them" if "cp" in place else "correct them, or give cp too"
            raise ConfigError(
                f"{path}: ranks {other} and {rank} have the same coordinates {same}: {advice}"
            )


def _whole(value: object) -> int | None:
    """Return a whole number from 0, written as such or as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST:
        return value
    return None
