"""Overflow records as the vendor's parser writes them: `….output.0.json`.

Source: the public dump parser of CANN. Its JSON holds the fields of the binary payload
(`opdebug`) under the same names, in one of two forms::

    {"DHA Atomic Add": {"model_id": 0, "stream_id": 0, "task_id": 0, "task_type": 0,
                        "pc_start": "0x0", "para_base": "0x0", "status": 0},
     "L2 Atomic Add": {…}, "AI Core": {…, "kernel_code": "0x…", "block_idx": 0, "status": 32}}

    {"magic": 1515870810, "version": 1,
     "acc_list": {"acc_type": "AIC", "data_len": 112, "data": {…, "status": [32, 0, 0, 0]}}}

Addresses are hex strings, ids and status words are numbers (strings are taken too), `acc_list`
can be a list of several records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import CorruptDumpError
from dumpscope.model import DumpFile, Match, OverflowRecord, OverflowUnit
from dumpscope.readers.adump_header import is_overflow_file
from dumpscope.readers.overflow_units import KINDS, make_record, make_unit
from dumpscope.readers.protocol import Record
from dumpscope.source import DumpSource

__all__ = ["OverflowJsonReader"]

_OLD_UNITS: Mapping[str, str] = MappingProxyType(
    {"aicore": "AIC", "dhaatomicadd": "DHA", "l2atomicadd": "L2"}
)
_MAX_BYTES = 4 << 20
_MAX_WORDS = 64
_MAX_RECORDS = 4096
_MAX_NUMBER = (1 << 64) - 1


class OverflowJsonReader:
    """Reads overflow records that the vendor's tools have parsed."""

    name = "overflow_json"
    formats = "overflow records parsed to JSON by the vendor's tools"
    versions = "without a magic; versions 0 and 1"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        if not (is_overflow_file(file.name) and file.name[-5:].lower() == ".json"):
            return Match.NONE
        return Match.CONTENT if head.lstrip()[:1] == b"{" else Match.NAME

    def read(self, source: DumpSource) -> Iterator[Record]:
        document = self._load(source)
        entries = document.get("acc_list")
        if entries is not None or "magic" in document:
            records = entries if isinstance(entries, list) else [entries]
            for entry in records[:_MAX_RECORDS]:
                yield self._read_entry(source, entry, document)
            return
        units = []
        for title, fields in document.items():
            kind = _OLD_UNITS.get("".join(title.split()).replace("_", "").lower())
            if kind is not None and isinstance(fields, dict):
                units.append(self._read_unit(source, kind, fields))
        if not units:
            raise self._damage(
                source, "expected the units of an overflow record or an acc_list, found neither"
            )
        order = ("AIC", "DHA", "L2")
        yield make_record(source.file, sorted(units, key=lambda unit: order.index(unit.kind)))

    def _load(self, source: DumpSource) -> dict[str, object]:
        if source.size > _MAX_BYTES:
            raise self._damage(
                source, f"expected at most {_MAX_BYTES} bytes of JSON, found {source.size}"
            )
        try:
            document = json.loads(source.read(0, source.size))
        except (ValueError, RecursionError) as error:
            raise self._damage(source, f"expected JSON, found none: {error}") from error
        if not isinstance(document, dict):
            raise self._damage(source, "expected a JSON object, found something else")
        return document

    def _read_entry(
        self, source: DumpSource, entry: object, document: dict[str, object]
    ) -> OverflowRecord:
        """Read one record of the new form."""
        data = entry.get("data") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(data, dict):
            raise self._damage(source, "expected acc_list to hold records with their data")
        acc_type = entry.get("acc_type")
        number = _number(acc_type)
        if number is not None:
            kind = KINDS[number] if number < len(KINDS) else str(number)
        else:
            kind = acc_type.strip().upper()[:32] if isinstance(acc_type, str) else "unknown"
        head = {key: document[key] for key in ("version",) if key in document}
        head |= {key: entry[key] for key in ("version", "valid") if key in entry}
        unit = self._read_unit(source, kind, data, head)
        return make_record(source.file, (unit,), kind in KINDS)

    def _read_unit(
        self,
        source: DumpSource,
        kind: str,
        fields: dict[str, object],
        head: dict[str, object] | None = None,
    ) -> OverflowUnit:
        status = fields.get("status", 0)
        words = status if isinstance(status, list) else [status]
        numbers = [_number(word) for word in words[:_MAX_WORDS]]
        if not numbers or any(number is None for number in numbers):
            raise self._damage(
                source, f"{kind}: expected a status of numbers, found {status!r:.80}"
            )
        named = []
        for key, value in [*fields.items(), *(head or {}).items()]:
            number = _number(value)
            if key != "status" and number is not None:
                named.append((key[:64], number))
        return make_unit(kind, [number or 0 for number in numbers], named[:_MAX_WORDS])

    def _damage(self, source: DumpSource, message: str) -> CorruptDumpError:
        return CorruptDumpError(message, path=source.file.relative, reader=self.name, offset=0)


def _number(value: object) -> int | None:
    """Read a number, decimal or hex; `None` for what is none, -1 stays what it means."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        if len(text) > 24:
            return None
        try:
            value = int(text, 16) if text[:2].lower() == "0x" else int(text)
        except ValueError:
            return None
    if not isinstance(value, int):
        return None
    if value < 0:  # a signed reading of all ones
        value &= _MAX_NUMBER
    return value if value <= _MAX_NUMBER else None
