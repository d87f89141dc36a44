"""Find the operator that went wrong first in Ascend NPU dumps.

>>> import dumpscope
>>> answer = dumpscope.scan("dump_data")             # doctest: +SKIP
>>> answer.findings[0].op.op_name                     # doctest: +SKIP
'layers/1/attn/BatchMatMulV2'
>>> for tensor in dumpscope.open_dump("Add.add.1.1.1764417600000000"):   # doctest: +SKIP
...     print(tensor.role, tensor.dtype, tensor.load().shape)

Names are imported when they are first used, so that `dumpscope --version` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dumpscope.version import __version__

if TYPE_CHECKING:
    from dumpscope.errors import DumpReadError, DumpscopeError
    from dumpscope.model import Finding, Scan, ScanOptions, Verdict
    from dumpscope.opendump import Dump, open_dump
    from dumpscope.readers.protocol import TensorRecord
    from dumpscope.reporters.delivery import write_report
    from dumpscope.reporters.frames import to_frame
    from dumpscope.scanning import scan

__all__ = [
    "Dump",
    "DumpReadError",
    "DumpscopeError",
    "Finding",
    "Scan",
    "ScanOptions",
    "TensorRecord",
    "Verdict",
    "__version__",
    "open_dump",
    "scan",
    "to_frame",
    "write_report",
]

_HOME = {
    "Dump": "dumpscope.opendump",
    "DumpReadError": "dumpscope.errors",
    "DumpscopeError": "dumpscope.errors",
    "Finding": "dumpscope.model",
    "Scan": "dumpscope.model",
    "ScanOptions": "dumpscope.model",
    "TensorRecord": "dumpscope.readers.protocol",
    "Verdict": "dumpscope.model",
    "open_dump": "dumpscope.opendump",
    "scan": "dumpscope.scanning",
    "to_frame": "dumpscope.reporters.frames",
    "write_report": "dumpscope.reporters.delivery",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dumpscope' has no attribute {name!r}")
    # No submodule may have a name that is promised here: importing it would take the name's place.
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
