"""Scans that were made apart, put together as one: stores and scan documents of several nodes.

A node's dump may lie on its own disk. It is scanned there, and what was read comes here as a
store or as a scan document. Their records go into one new scan, as if the paths of all of them
had been given to one call in that order, and verdicts are computed from the union: who sent a
bad value to whom shows only there.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dumpscope.conclude import check_files
from dumpscope.errors import OptionsError, StoreError
from dumpscope.importable import Part
from dumpscope.model import DumpFile, FileResult, Place, ReadFailure, Remark, ScanOptions
from dumpscope.ranks.rankview import check_rank_options
from dumpscope.records import record
from dumpscope.roots import common_root, is_inside, join, relative_to
from dumpscope.store import Store
from dumpscope.version import VERSION

__all__ = ["Imported", "import_parts"]

_FILES_AT_ONCE = 128
_OPS_AT_ONCE = 4096
_MOST_GROWING = 100
_READ_BY = ("stats", "near_limit_share", "reader", "steps", "ranks")
_ASKED = ("op_globs", "run", "expect")
_FILES_OF_OPTIONS = (("rules_file", "--rules"), ("rank_map", "--rank-map"),
                     ("baseline", "--baseline"))  # fmt: skip


@record(frozen=True, slots=True)
class Imported:
    """The new scan, and remarks on what is not as one scan of everything would have it."""

    scan_id: str
    said: tuple[Remark, ...] = ()


def import_parts(store: Store, parts: Sequence[Part], ranks: Mapping[str, Any]) -> Imported:
    """Copy the records of all parts into a new scan of a store. Returns its id.

    Options and the configuration are those of the first part. When something goes wrong the
    store is left without the new scan.

    Parameters
    ----------
    ranks
        Fields of `ScanOptions` that are set anew.
    """
    if not parts:
        raise OptionsError("nothing to import: name stores or scan documents")
    options, said = _join_options(parts, ranks)
    _check_options(options, ranks)
    root, placed = _place_parts(parts)
    started = time.monotonic()
    sources = [source for part in placed for source in part.sources]
    scan_id = store.begin(root, sources, options, parts[0].config, VERSION)
    try:
        for part in placed:
            _copy_part(store, scan_id, part)
        store.finish(scan_id, _join_totals(placed), time.monotonic() - started)
    except BaseException:
        # A half scan would look like a dump with less in it.
        with suppress(StoreError):
            store.remove(scan_id)
        raise
    return Imported(scan_id, (*said, *_tell_documents(parts)))


# --- one scan of them all ---------------------------------------------------------------------


def _place_parts(parts: Sequence[Part]) -> tuple[str, list[Part]]:
    """Find the common root, and say of each part where below it its files lie.

    Where paths of two parts are the same, or one lies inside the other, they are of different
    nodes: a label in front tells their files apart, and a host of that name their devices.
    """
    roots = [part.root for part in parts]
    root = common_root(roots)
    prefixes = [relative_to(path, root) for path in roots]
    is_shared = [
        any(other is not part and _overlap(part, other) for other in parts) for part in parts
    ]
    taken = {
        prefix.split("/")[0]
        for prefix, shared in zip(prefixes, is_shared, strict=True)
        if not shared
    }
    placed: list[Part] = []
    first_source = 0
    for part, below, shared in zip(parts, prefixes, is_shared, strict=True):
        prefix, label = below, None
        if shared:
            label = _unique_label(part.path, taken)
            taken.add(label)
            prefix = _prefixed(label, below)
        placed.append(replace(part, prefix=prefix, host=label, first_source=first_source))
        first_source += part.paths
    return root, placed


def _overlap(part: Part, other: Part) -> bool:
    return any(
        is_inside(path, another) or is_inside(another, path)
        for path in part.sources or (part.root,)
        for another in other.sources or (other.root,)
    )


def _unique_label(path: str, taken: Iterable[str]) -> str:
    """Make the stem of a file's name a label; files named alike are told apart by their folder."""
    folder, name = os.path.split(os.path.abspath(path))
    stem = os.path.splitext(name)[0] or "scan"
    parent = os.path.basename(folder)
    wished = [stem, f"{parent}-{stem}" if parent else stem]
    taken = set(taken)
    free = next((label for label in wished if label not in taken), None)
    number = 2
    while free is None:
        label = f"{stem}-{number}"
        free = label if label not in taken else None
        number += 1
    return free


def _join_options(
    parts: Sequence[Part], ranks: Mapping[str, Any]
) -> tuple[ScanOptions, list[Remark]]:
    """Take the options of the first part; say where the others were read or asked differently."""
    first = parts[0]
    options = replace(first.options, **ranks)
    said = []
    for part in parts[1:]:
        differing = [
            name
            for name in (*_READ_BY, *_ASKED)
            if getattr(part.options, name) != getattr(first.options, name)
        ]
        if differing:
            names = {"path": part.path, "names": ", ".join(differing), "first": first.path}
            said.append(Remark("import_read_by", names))
        if part.config is not None and part.config != first.config:
            said.append(Remark("import_config", {"path": part.path, "first": first.path}))
    if any(part.options.stats == "screen" for part in parts):
        # What was only screened lacks the columns that "full" promises.
        options = replace(options, stats="screen")
    return options, said


def _check_options(options: ScanOptions, given: Mapping[str, Any]) -> None:
    """Refuse what the new scan could not be concluded with, before anything is copied.

    `given` are the options of this call; others may name files of another machine.
    """
    for name, option in _FILES_OF_OPTIONS:
        path = getattr(options, name)
        if path is not None and given.get(name) is None and not os.path.exists(path):
            raise OptionsError(
                f"{path}: the first scan was asked for with {option}, and that file is not here; "
                "copy it to this place, or name another scan first"
            )
    check_rank_options(options)
    check_files(options)


def _join_totals(parts: Sequence[Part]) -> dict[str, object]:
    by_kind: Counter[str] = Counter()
    growing: list[str] = []
    for part in parts:
        by_kind.update(part.totals.get("skipped_by_kind") or {})
        growing += (_prefixed(part.prefix, str(name)) for name in part.totals.get("growing") or ())
    return {
        "files": sum(part.totals.get("files") or 0 for part in parts),
        "bytes": sum(part.totals.get("bytes") or 0 for part in parts),
        "skipped": sum(part.totals.get("skipped") or 0 for part in parts),
        "skipped_by_kind": dict(by_kind),
        "growing": growing[:_MOST_GROWING],
        "imported_scans": len(parts),
        "imported_documents": sum(
            1 if part.is_document else part.totals.get("imported_documents") or 0 for part in parts
        ),
    }


def _tell_documents(parts: Sequence[Part]) -> Iterator[Remark]:
    for part in parts:
        if part.is_document:
            yield Remark("import_document", {"path": part.path})


# --- copying ----------------------------------------------------------------------------------


def _copy_part(store: Store, scan_id: str, part: Part) -> None:
    signature = f"imported from {part.scan_id}"  # no reader's: never taken for a file read here
    mover = _Mover(part)
    store.add_failures(scan_id, map(mover.move_failure, part.failures()))
    batch: list[FileResult] = []
    ops = 0
    for result in part.results():
        batch.append(mover.move(result))
        ops += len(result.ops)
        if len(batch) >= _FILES_AT_ONCE or ops >= _OPS_AT_ONCE:
            store.add(scan_id, batch, signature)
            batch, ops = [], 0
    if batch:
        store.add(scan_id, batch, signature)


class _Mover:
    """Gives the records of a part the paths and places that they have in the union."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._places: dict[Place, Place] = {}

    def move(self, result: FileResult) -> FileResult:
        name = self._name
        place = self._place
        file = result.file
        return replace(
            result,
            file=DumpFile(
                "", name(file.relative), file.name, file.size, 0, 0, 0, place(file.place)
            ),
            ops=tuple(replace(op, file=name(op.file), place=place(op.place)) for op in result.ops),
            overflow=tuple(
                replace(record, file=name(record.file), place=place(record.place))
                for record in result.overflow
            ),
            graph=tuple(replace(node, file=name(node.file)) for node in result.graph),
            failures=tuple(map(self.move_failure, result.failures)),
        )

    def move_failure(self, failure: ReadFailure) -> ReadFailure:
        return replace(failure, file=self._name(failure.file))

    def _name(self, relative: str) -> str:
        return _prefixed(self._part.prefix, relative)

    def _place(self, place: Place) -> Place:
        moved = self._places.get(place)
        if moved is None:
            part = self._part
            moved = self._places[place] = replace(
                place, source=place.source + part.first_source, host=place.host or part.host
            )
        return moved


def _prefixed(prefix: str, relative: str) -> str:
    """Put a prefix before a path; "." and nothing stand for the root."""
    if not prefix:
        return relative
    return prefix if relative in {"", "."} else join(prefix, relative)
