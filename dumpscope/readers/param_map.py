"""Names of parameters by index, beside gradients that were saved without names.

===========================================  ==================================================
file                                         what
===========================================  ==================================================
`param_map_tp{t}pp{p}dp{d}.json`             the parameters of the ranks with these coordinates:
                                             a JSON list of names, or an object index -> name
===========================================  ==================================================

A hook that saves `[p.grad for p in model.parameters()]` writes such a map once for each rank or
each place in the job. It describes others and holds no values: `GraphNode`s of type `PARAMETER`
whose `order` is the index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import CorruptDumpError
from dumpscope.model import PARAMETER, DumpFile, GraphNode, Match
from dumpscope.readers.protocol import Record
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["ParamMapReader"]

_NAME = regex(r"param_map_tp[0-9]{1,6}pp[0-9]{1,6}dp[0-9]{1,6}\.json")
_MAX_BYTES = 16 << 20
_MAX_NAME = 4096
_MAX_INDEX = 1 << 24


class ParamMapReader:
    """Reads names of parameters; it yields `GraphNode`s without edges."""

    name = "param_map"
    formats = "names of parameters by index (param_map_tp0pp0dp0.json)"
    versions = "JSON lists and objects"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the name, with a JSON list or object behind it."""
        if not _NAME.fullmatch(file.name):
            return Match.NONE
        return Match.CONTENT if head.lstrip()[:1] in (b"[", b"{") else Match.NAME

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield one node for every parameter."""
        for index, name in _pairs(source):
            yield GraphNode(name, PARAMETER, order=index)


def _pairs(source: DumpSource) -> Iterable[tuple[int, str]]:
    path = source.file.relative
    if source.size > _MAX_BYTES:
        raise CorruptDumpError(
            f"expected at most {_MAX_BYTES} bytes of names, found {source.size}",
            path=path,
            offset=_MAX_BYTES,
        )
    try:
        loaded = json.loads(source.read(0, source.size))
    except (ValueError, RecursionError) as error:
        offset = error.pos if isinstance(error, json.JSONDecodeError) else None
        raise CorruptDumpError(
            "expected a JSON list or object of names; it is no JSON", path=path, offset=offset
        ) from error
    pairs = enumerate(loaded) if isinstance(loaded, list) else _entries(loaded)
    found = {}
    for key, name in pairs:
        index = key if isinstance(key, int) else _index_of(key)
        if index is None or not isinstance(name, str) or not name or len(name) > _MAX_NAME:
            raise CorruptDumpError(
                f"expected an index and a name, found {str(key)[:60]!a}: {str(name)[:60]!a}",
                path=path,
            )
        found[index] = name
    return sorted(found.items())


def _entries(loaded: object) -> Iterable[tuple[object, object]]:
    # Nothing else can start with a brace.
    return loaded.items() if isinstance(loaded, dict) else [("", loaded)]


def _index_of(key: object) -> int | None:
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 9:
        index = int(key)
        return index if index < _MAX_INDEX else None
    return None
