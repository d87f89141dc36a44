"""The order in which MindSpore runs its operators: `execution_order/*.csv` beside the dump.

========================================  ====================================================
file                                      what
========================================  ====================================================
`ms_execution_order_graph_{n}.csv`        a header `NodeExecutionOrder-FullNameWithScope`, then
                                          one operator a line, with its scopes:
                                          `Default/network/fc-Dense/MatMul-op0`
`ms_global_execution_order_graph_{n}.csv` the iterations in which graph n ran, one a line:
                                          nothing about operators
========================================  ====================================================

Dump names have `_` where these have `/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import CorruptDumpError
from dumpscope.model import DumpFile, GraphNode, Match
from dumpscope.readers.protocol import Record
from dumpscope.readers.text_lines import stream_lines
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["ExecutionOrderReader"]

_HEADER = "NodeExecutionOrder-FullNameWithScope"
_START = regex(rb"(?:\xef\xbb\xbf)?" + re.escape(_HEADER.encode()) + rb"\s*[,\r\n]")
_NAME = regex(r"ms_(global_)?execution_order_graph_[0-9]+\.csv")
_MAX_NAME = 4096
_MAX_NAMES = 4_000_000


class ExecutionOrderReader:
    """Reads the order of operators; it yields `GraphNode`s without edges."""

    name = "execution_order"
    formats = "MindSpore execution order (execution_order/*.csv)"
    versions = "MindSpore 2.0 to 2.10"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise the header line, else the name."""
        if _START.match(head):
            return Match.CONTENT
        return Match.NAME if _NAME.fullmatch(file.name) else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield one node for every operator, in the order of execution."""
        order = 0
        for line in stream_lines(source):
            name = line.text.partition(",")[0].strip().strip('"')
            if line.offset == 0 and name == _HEADER:
                continue
            if line.cut or len(name) > _MAX_NAME or order >= _MAX_NAMES:
                raise CorruptDumpError(
                    f"expected names of at most {_MAX_NAME} bytes, found a longer line",
                    path=source.file.relative,
                    offset=line.offset,
                )
            if not name or name.isdigit():
                continue
            yield GraphNode(name, "", order=order)
            order += 1
