"""What a bug report needs to say about the machine and what is installed."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata

__all__ = ["list_surroundings"]

_PACKAGES = (
    "click", "numpy", "ml_dtypes", "protobuf", "json5", "openpyxl", "pandas", "rich", "jinja2",
    "tqdm",
)  # fmt: skip


def list_surroundings() -> Iterator[str]:
    """Yield one line for each fact: Python, system, packages, kernel, readers, store."""
    from dumpscope.kernel import describe_kernel
    from dumpscope.plugins import load_readers
    from dumpscope.store import SQLITE_VERSION, existing_store_path

    yield f"python {platform.python_version()} ({platform.python_implementation()})"
    yield f"system {platform.system()} {platform.release()} {platform.machine()}"
    yield f"byte order {sys.byteorder}, encoding {sys.stdout.encoding}, cores {os.cpu_count()}"
    yield f"sqlite {SQLITE_VERSION}"
    for package in _PACKAGES:
        try:
            yield f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            yield f"{package} missing"
    yield f"kernel {describe_kernel()}"
    registry = load_readers()
    yield f"readers {', '.join(plugin.name for plugin in registry.plugins)}"
    for broken in registry.broken:
        yield f"broken reader {broken.name}: {broken.reason}"
    yield f"store {existing_store_path()}"
