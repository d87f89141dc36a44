"""Tensors that torch saved (.pt, .pth): hooks, crash dumps, msprobe's dump_tensor_data.

The file is a zip archive (`torch_archive`, `zip_members`) or, before PyTorch 1.6, a row of
pickles (`torch_legacy`). Its object is interpreted by `torch_unpickle`, which imports nothing and
runs nothing; its tensors are streamed from where they lie (`torch_views`). What they are tensors
of is in the keys of the object and in the name of the file (`torch_executions`)::

    {converted dump name}.{input|output}.{i}.….pt     one tensor of a CANN operator
    {msprobe key}.{input|output}.{i}.pt               one tensor of an msprobe entry
    crash_step_{n}.pt                                 anything, of step n
    {anything}.pt                                     an operator called so

Known types are those of PyTorch 2.13: float16/32/64, bfloat16, the float8 and float4 types,
complex, bool, integers, quantised integers (as the integers they are stored as).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from dumpscope.errors import DumpReadError
from dumpscope.model import DumpFile, Match
from dumpscope.readers.protocol import Record
from dumpscope.readers.torch_magic import LEGACY_MAGIC
from dumpscope.readers.zip_members import ZIP_MAGIC
from dumpscope.source import DumpSource

__all__ = ["TorchReader"]

_SUFFIXES = (".pt", ".pth")


class TorchReader:
    """Reads torch.save files without torch."""

    name = "torch_pt"
    formats = "PyTorch tensors (.pt, .pth), plain containers of tensors"
    versions = "PyTorch 1.6 to 2.13 (zip), 0.4 to 1.5 (pickles); torch_npu"
    companions: Mapping[str, str] = MappingProxyType({})

    def sniff(self, head: bytes, file: DumpFile) -> Match:
        """Recognise an archive that starts with data.pkl, or the old magic number."""
        if head.startswith(LEGACY_MAGIC):
            return Match.CONTENT
        named = file.name.lower().endswith(_SUFFIXES)
        if head.startswith(ZIP_MAGIC) and len(head) > 30:
            first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
            if first == b"data.pkl" or first.endswith(b"/data.pkl"):
                return Match.CONTENT
            if named and not first.endswith(b".npy"):
                return Match.CONTENT
        return Match.NAME if named else Match.NONE

    def read(self, source: DumpSource) -> Iterator[Record]:
        """Yield the executions that the object holds tensors of."""
        # Only here: a scan of other files would start later for it.
        from dumpscope.readers.torch_executions import read_executions

        try:
            yield from read_executions(source)
        except DumpReadError as error:
            error.path = error.path or source.file.relative
            raise
