"""The scans that `diff` and `trend` are asked for: ids, stores, or scan documents.

An existing file wins: a SQLite file is a store and stands for its newest scan, anything else has
to be a scan document. Else the text is an id of the store in use, its beginning, `latest`, or
`latest~N`, the Nth scan before the newest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from dumpscope.errors import ConfigError, OptionsError, StoreError
from dumpscope.model import Finding, OpRecord, Reason
from dumpscope.nightly.baseline import entries_in_document, list_entries, model_key
from dumpscope.nightly.diffing import FindingBrief, Reading, Side
from dumpscope.nightly.headroom import largest_magnitude, magnitude_of
from dumpscope.regexes import regex
from dumpscope.safetext import make_printable
from dumpscope.scanning import load_scan
from dumpscope.store import Store, existing_store_path

__all__ = ["find_scan_id", "open_side", "side_of_document"]

_SCAN_SCHEMA = "dumpscope.scan/1"
_SQLITE = b"SQLite format 3\0"
_MOST_BYTES = 1 << 30
_BEFORE_LATEST = regex(r"latest~([0-9]{1,6})")


@contextmanager
def open_side(text: str, store_file: str | None = None) -> Iterator[Side]:
    """Open what `text` names; it can be read as long as the block lasts.

    Raises
    ------
    StoreError
        There is no such store or scan.
    ConfigError, OptionsError
        The file is no scan document, or one that was cut by `--limit`.
    """
    with ExitStack() as opened:
        if os.path.isfile(text):
            if _begins_with(text, _SQLITE):
                store = opened.enter_context(Store.open(text, create=False, write=False))
                yield _side_of_store(store, "latest", text)
            else:
                yield side_of_document(_load_document(text), text)
            return
        path = existing_store_path(store=store_file)
        store = opened.enter_context(Store.open(path, create=False, write=False))
        yield _side_of_store(store, text, text)


def find_scan_id(store: Store, text: str) -> str:
    """Return the id of the scan that a text names. Raises `StoreError`."""
    match = _BEFORE_LATEST.fullmatch(text)
    if match is None:
        return store.find_scan(text)
    scans = store.scans()
    back = int(match[1])
    if back >= len(scans):
        raise StoreError(
            f"{store.path}: {text} asks for {back + 1} scans and there are {len(scans)}; "
            "`dumpscope scans list` shows them"
        )
    return scans[back].scan_id


def _side_of_store(store: Store, text: str, source: str) -> Side:
    scan_id = find_scan_id(store, text)
    # What a baseline knew is compared like everything else, and its file may be gone.
    options = replace(store.scan_info(scan_id).options, baseline=None)
    scan = load_scan(store, scan_id, options, history=False)
    return Side(
        source=source,
        scan_id=scan.scan_id,
        root=scan.root,
        findings=tuple(_brief(finding) for finding in scan.findings),
        read_listed=lambda: _read_ops(f.op for f in (*scan.findings, *scan.expected)),
        read_tensors=lambda: _read_ops(store.ops(scan_id)),
        tensor_count=scan.counts.tensors,
    )


def _brief(finding: Finding) -> FindingBrief:
    return FindingBrief(
        entries=tuple(list_entries(finding)),
        rank=finding.rank,
        step=finding.op.step,
        device=finding.op.device,
        verdict=finding.verdict.value,
        reason=finding.reason,
    )


def _read_ops(ops: Iterable[OpRecord]) -> Iterator[Reading]:
    for op in ops:
        model = model_key(op.place.model_name)
        for tensor in op.tensors:
            if not (tensor.dumped and tensor.stats.count):
                continue
            yield Reading(
                key=(model, op.op_type, op.op_name, f"{tensor.role}.{tensor.index}"),
                dtype=tensor.dtype,
                largest=largest_magnitude(tensor.stats),
                count=tensor.stats.count,
                zero=tensor.stats.zero,
                subnormal=tensor.stats.subnormal,
            )


# --- documents ----------------------------------------------------------------------------------


def _begins_with(path: str, magic: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(magic)) == magic
    except OSError as error:
        raise ConfigError(f"{make_printable(path)}: cannot be read: {error}") from error


def _load_document(path: str) -> Mapping[str, Any]:
    shown = make_printable(path)
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(
                f"{shown}: larger than {_MOST_BYTES >> 30} GiB; name its store instead"
            )
        document = json.loads(content.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{shown}: neither a store nor a scan document: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != _SCAN_SCHEMA:
        raise ConfigError(
            f"{shown}: expected schema {_SCAN_SCHEMA}, found {schema!r}; "
            "`dumpscope report --json` writes such a document"
        )
    assert isinstance(document, dict)
    return document


def side_of_document(document: Mapping[str, Any], source: str = "") -> Side:
    """Make a side of a scan document; only the tensors that it lists can be compared.

    Raises
    ------
    OptionsError
        It was cut by `--limit`: what was left out would count as new, or as gone.
    ConfigError
        It is none.
    """
    shown = make_printable(source)
    left_out = document.get("truncated", 0)
    if left_out:
        raise OptionsError(
            f"{shown}: its list of findings was cut, {left_out} were left out; "
            "write it again with --limit 0"
        )
    try:
        findings = tuple(_brief_in_document(finding) for finding in document["findings"])
        listed = [*document["findings"], *document.get("expected", ())]
        readings = [reading for finding in listed for reading in _readings(finding)]
        return Side(
            source=source,
            scan_id=str(document["scan_id"]),
            root=str(document["root"]),
            findings=findings,
            read_listed=lambda: iter(readings),
            tensor_count=len(readings),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"{shown}: no scan document of dumpscope: {error!r}") from error


def _brief_in_document(finding: Mapping[str, Any]) -> FindingBrief:
    parameters = finding.get("reason_parameters") or {}
    return FindingBrief(
        entries=tuple(entries_in_document(finding)),
        rank=finding["rank"],
        step=finding["step"],
        device=finding["device"],
        verdict=str(finding["verdict"]),
        reason=Reason(str(finding["reason_code"]), dict(parameters)),
    )


def _readings(finding: Mapping[str, Any]) -> Iterator[Reading]:
    model = model_key(finding.get("model_name"))
    for tensor in finding["tensors"]:
        if not tensor.get("count"):
            continue
        yield Reading(
            key=(
                model,
                finding["op_type"] or "",
                finding["op_name"] or "",
                f"{tensor['role']}.{tensor['index']}",
            ),
            dtype=str(tensor["dtype"]),
            largest=magnitude_of(_number(tensor["min"]), _number(tensor["max"])),
            count=int(tensor["count"]),
            zero=_count(tensor["zero"]),
            subnormal=_count(tensor["subnormal"]),
        )


def _count(value: object) -> int | None:
    return None if value is None else int(str(value))


def _number(value: object) -> float | None:
    """A number of strict JSON; "inf" and "nan" are texts there."""
    return None if value is None or isinstance(value, bool) else float(str(value))
