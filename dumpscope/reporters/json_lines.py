"""How JSON documents are written: strict, and with one entry per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dumpscope.safetext import escape_json_text

__all__ = ["dump_json", "dump_lines"]


def dump_json(value: Any) -> str:
    """Return a value as strict JSON on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def dump_lines(document: Mapping[str, Any]) -> str:
    """Return a document with one key per line, and one entry of a list.

    So documents can be searched and compared with line tools.
    """
    lines = [f"{dump_json(key)}: {_dump_list(value)}" for key, value in document.items()]
    return escape_json_text("{" + ",\n ".join(lines) + "}")


def _dump_list(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return dump_json(value)
    return "[\n  " + ",\n  ".join(map(dump_json, value)) + "]"
