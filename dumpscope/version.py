"""The version of the program, kept here so that `--version` reads no package metadata."""

from __future__ import annotations

__all__ = ["VERSION", "__version__"]

VERSION = "0.1.0"
__version__ = VERSION
