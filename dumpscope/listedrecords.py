"""Records out of a scan document (`dumpscope.scan/1`): what it lists, made measured again.

A document lists findings, expected values, unchecked tensors, failures and overflow records. Of
an operator it tells all but its device addresses, the digest of its bytes, and its edges. So
where a verdict rests on one of these, computing it again may give a weaker one.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dumpscope.errors import ConfigError, OptionsError
from dumpscope.model import (
    DumpFile,
    FileResult,
    MaskPattern,
    OpRecord,
    OverflowRecord,
    OverflowUnit,
    Place,
    ReadFailure,
    Role,
    ScanOptions,
    TensorStats,
    TensorSummary,
)
from dumpscope.naming import timestamp_ns
from dumpscope.places import place_of
from dumpscope.records import record
from dumpscope.remote.urls import is_url
from dumpscope.roots import join

__all__ = ["SCAN_MARK", "ListedRecords", "load_records"]

SCAN_MARK = b"{"
"""How a document begins."""

_SCHEMA = "dumpscope.scan/1"
_MOST_BYTES = 256 << 20
_MARK_READER = "import"

Json = Mapping[str, Any]


@record(frozen=True, slots=True)
class ListedRecords:
    """What a document lists, as files with records."""

    path: str
    scan_id: str
    root: str
    options: ScanOptions
    config: Mapping[str, object] | None
    totals: Mapping[str, Any]
    results: tuple[FileResult, ...]
    failures: tuple[ReadFailure, ...]


def load_records(path: str) -> ListedRecords:
    """Read a scan document.

    Raises
    ------
    ConfigError
        It cannot be read, or is no scan document of dumpscope.
    OptionsError
        Its lists were cut.
    """
    document = _load(path)
    limit = document.get("limit") or {}
    try:
        left_out = document.get("truncated", 0) or limit.get("expected_left_out", 0)
        if left_out:
            raise OptionsError(
                f"{path}: its list of findings was cut, {left_out} were left out; "
                "write it again with --limit 0"
            )
        root = document["root"]
        if not isinstance(root, str) or not (os.path.isabs(root) or is_url(root)):
            raise ConfigError(f"{path}: root: expected an absolute path, found {root!r}")
        config = document["config"]
        if config is not None and not isinstance(config, dict):
            raise ConfigError(f"{path}: config: expected an object or null, found {config!r}")
        return _Listing(document, path, root).records()
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{path}: no scan document of dumpscope: {error!r}") from error


def _load(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path}: larger than {_MOST_BYTES >> 20} MiB; import the store instead")
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != _SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise ConfigError(f"{path}: expected a document of schema {_SCHEMA}, found {found!r}")
    return document


class _Listing:
    """Goes through a document once."""

    def __init__(self, document: Json, path: str, root: str) -> None:
        self._document = document
        self._path = path
        self._root = root
        self._places: dict[str, Place] = {}
        self._ops: dict[str, list[OpRecord]] = defaultdict(list)
        self._overflow: dict[str, list[OverflowRecord]] = defaultdict(list)
        self._known: set[tuple[object, ...]] = set()

    def records(self) -> ListedRecords:
        document = self._document
        for number, entry in enumerate(document["findings"]):
            self._take_op(entry, number, expected=False)
        for number, entry in enumerate(document["expected"]):
            self._take_op(entry, number, expected=True)
        for entry in document["unchecked"]:
            self._take_unchecked(entry)
        for entry in document["overflow_records"]:
            self._overflow[_file_name(entry["file"])].append(self._record_of(entry))
        names = list(dict.fromkeys((*self._ops, *self._overflow)))
        results = [
            FileResult(
                self._file(name),
                self._ops[name][0].reader if self._ops.get(name) else "",
                ops=tuple(self._ops.get(name, ())),
                overflow=tuple(self._overflow.get(name, ())),
            )
            for name in names
        ]
        results += [
            FileResult(self._file(_file_name(name)), known=False)
            for name in document["unknown_files"]
        ]
        counts, filters = document["counts"], document["filters"]
        failures = [
            ReadFailure(
                str(entry["file"]), str(entry["reader"]), str(entry["error"]),
                _whole(entry["offset"]), str(entry["message"]),
            )
            for entry in document["read_failures"]
        ]  # fmt: skip
        if not document["complete"] and not failures and not document["unchecked"]:
            failures.append(
                ReadFailure(
                    ".", _MARK_READER, "DumpReadError", None,
                    f"the scan behind {os.path.basename(self._path)} was not complete",
                )
            )  # fmt: skip
        return ListedRecords(
            self._path,
            str(document["scan_id"]),
            self._root,
            ScanOptions(
                stats="full" if document["statistics"] == "full" else "screen",
                steps=tuple(map(int, filters["steps"])),
                ranks=tuple(map(int, filters["ranks"])),
                op_globs=tuple(map(str, filters["op"])),
                run=str(filters["run"]),
            ),
            document["config"],
            {"files": len(results), "bytes": 0, "skipped": int(counts["skipped"])},
            tuple(results),
            tuple(failures),
        )

    def _file(self, name: str) -> DumpFile:
        return DumpFile("", name, name.rpartition("/")[2], 0, 0, 0, 0, self._place(name))

    def _place(self, name: str) -> Place:
        folder = os.path.dirname(join(self._root, os.path.normpath(name)))
        place = self._places.get(folder)
        if place is None:
            place = self._places[folder] = place_of(folder, 0, self._root)
        return place

    def _take_op(self, entry: Json, number: int, *, expected: bool) -> None:
        tensors = tuple(map(_tensor_of, entry["tensors"]))
        if not tensors and not entry["op_type"] and not entry["op_name"]:
            return  # the hardware's record of an operator that is not there: it comes by itself
        if expected:
            tensors = tuple(_mark_mask(tensor, number) for tensor in tensors)
        name = _file_name(entry["file"])
        place = replace(
            self._place(name),
            run=_text(entry["run"]),
            host=_text(entry["host"]),
            device_id=_whole(entry["device_id"]),
            global_rank=_whole(entry["global_rank"]),
            model_name=_text(entry["model_name"]),
            model_id=_whole(entry["model_id"]),
        )
        timestamp = _whole(entry["timestamp"])
        op = OpRecord(
            str(entry["op_type"] or ""),
            str(entry["op_name"] or ""),
            tensors,
            task_id=_whole(entry["task_id"]),
            stream_id=_whole(entry["stream_id"]),
            timestamp=timestamp,
            start_ns=None if timestamp is None else timestamp_ns(timestamp),
            # Without times the ranking is the best order there is: causes stand before effects.
            order=number,
            context_id=_whole(entry["context_id"]),
            thread_id=_whole(entry["thread_id"]),
            step=_whole(entry["step"]),
            device=_whole(entry["device"]),
            parent=_text(entry["parent"]),
            stack=tuple(map(str, entry.get("stack", ()))),
            reader=str(entry["reader"]),
            file=name,
            place=place,
        )
        self._ops[name].append(op)
        self._known.add((name, op.op_type, op.op_name, op.step, op.device))

    def _take_unchecked(self, entry: Json) -> None:
        """Keep a tensor that could not be checked, unless a finding has it already."""
        name = _file_name(entry["file"])
        tensor = TensorSummary(
            _role(entry["role"]),
            int(entry["index"]),
            str(entry["dtype"]),
            "",
            tuple(map(int, entry["shape"])),
            checked=False,
            unchecked=_text(entry["why"]),
        )
        step, device = _whole(entry["step"]), _whole(entry["device"])
        op_type, op_name = str(entry["op_type"]), str(entry["op_name"])
        if (name, op_type, op_name, step, device) in self._known:
            return
        ops = self._ops[name]
        for number, op in enumerate(ops):
            if (op.op_type, op.op_name, op.step, op.device) == (op_type, op_name, step, device):
                ops[number] = replace(op, tensors=(*op.tensors, tensor))
                return
        ops.append(
            OpRecord(
                op_type, op_name, (tensor,), step=step, device=device, file=name,
                place=self._place(name),
            )
        )  # fmt: skip

    def _record_of(self, entry: Json) -> OverflowRecord:
        name = _file_name(entry["file"])
        place = self._place(name)
        step, device = _whole(entry["step"]), _whole(entry["device"])
        if place.step != step:
            place = replace(place, step=step)
        if place.device != device:
            place = replace(place, device_id=device, global_rank=None)
        timestamp = _whole(entry["timestamp"])
        return OverflowRecord(
            (_unit_of(entry), *map(_unit_of, entry["others"])),
            name,
            timestamp,
            None if timestamp is None else timestamp_ns(timestamp),
            bool(entry["known_kind"]),
            place,
        )


def _unit_of(entry: Json) -> OverflowUnit:
    return OverflowUnit(
        str(entry["kind"]),
        tuple(map(int, entry["status"])),
        _whole(entry["model_id"]),
        _whole(entry["stream_id"]),
        _whole(entry["task_id"]),
        _whole(entry["context_id"]),
        _whole(entry["thread_id"]),
        tuple((str(name), int(value)) for name, value in entry["fields"].items()),
    )


def _tensor_of(entry: Json) -> TensorSummary:
    bad, box = entry["first_bad"], entry["bad_box"]
    return TensorSummary(
        _role(entry["role"]),
        int(entry["index"]),
        str(entry["dtype"]),
        str(entry["layout"]),
        tuple(map(int, entry["shape"])),
        checked=bool(entry["checked"]),
        dumped=bool(entry["dumped"]),
        unchecked=_text(entry["unchecked"]),
        size_bytes=int(entry["size_bytes"]),
        missing_bytes=int(entry["missing_bytes"]),
        from_statistics=bool(entry["from_statistics"]),
        name=_text(entry["name"]),
        notes=tuple(map(str, entry["notes"])),
        stats=TensorStats(
            count=int(entry["count"] or 0),
            nan=int(entry["nan"] or 0),
            posinf=int(entry["posinf"] or 0),
            neginf=int(entry["neginf"] or 0),
            saturated=int(entry["saturated"] or 0),
            near_limit=_whole(entry["near_limit"]),
            subnormal=_whole(entry["subnormal"]),
            zero=_whole(entry["zero"]),
            padding_nonfinite=int(entry["padding_nonfinite"] or 0),
            min=_number(entry["min"]),
            max=_number(entry["max"]),
            mean=_number(entry["mean"]),
            std=_number(entry["std"]),
            rms=_number(entry["rms"]),
            l2=_number(entry["l2"]),
            first_bad=None if bad is None else tuple(map(int, bad)),
            bad_box=None if box is None else tuple((int(a), int(b)) for a, b in box),
        ),
    )


def _mark_mask(tensor: TensorSummary, number: int) -> TensorSummary:
    """Give back what told the judge that the values are a mask: one constant, one pattern."""
    stats = tensor.stats
    if stats.neginf and stats.neginf == stats.nonfinite:
        value = float("-inf")
        count = stats.neginf
    elif stats.saturated and not stats.nonfinite and isinstance(stats.min, float):
        value, count = stats.min, stats.saturated
        stats = replace(stats, saturated_negative=count)
    else:
        return tensor
    return replace(
        tensor, stats=replace(stats, mask=MaskPattern(value, count, f"document {number}"))
    )


def _file_name(value: object) -> str:
    if not isinstance(value, str) or os.path.isabs(value) or ".." in value.split("/"):
        raise ValueError(f"expected a path below the root, found {value!r}")
    return value


def _role(value: object) -> Role:
    if value == "input":
        return "input"
    if value == "output":
        return "output"
    raise ValueError(f"expected input or output, found {value!r}")


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"expected a string or null, found {value!r}")
    return value


def _whole(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"expected a whole number or null, found {value!r}")
    return value


def _number(value: object) -> float | int | None:
    """Undo `json_number` of the document."""
    if isinstance(value, str):
        return float(value)
    if value is None or isinstance(value, (int, float)):
        return value
    raise TypeError(f"expected a number, found {value!r}")
