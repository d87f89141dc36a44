"""Files to start from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from dumpscope.aclconfig.rules import check_document
from dumpscope.errors import OptionsError

__all__ = ["DEFAULT_DUMP_PATH", "PRESETS", "preset"]

DEFAULT_DUMP_PATH = "dump_data"
"""Where the presets dump to: a folder beside the program's working folder."""


PRESETS: Mapping[str, str] = MappingProxyType(
    {
        "overflow": "operators that overflow, inputs and outputs, and the hardware's status",
        "model": "inputs and outputs of every operator of all models",
        "single-op": "inputs and outputs of operators that are called one by one",
        "stats": "statistics of inputs and outputs instead of their values: small and fast",
    }
)

_SETTINGS: Mapping[str, Mapping[str, object]] = {
    "overflow": {"dump_debug": "on"},
    "model": {
        "dump_list": [{}],
        "dump_mode": "all",
        "dump_data": "tensor",
        "dump_op_switch": "off",
    },
    "single-op": {
        "dump_list": [{}],
        "dump_mode": "all",
        "dump_data": "tensor",
        "dump_op_switch": "on",
    },
    "stats": {
        "dump_list": [{}],
        "dump_mode": "all",
        "dump_data": "stats",
        "dump_op_switch": "off",
    },
}


def preset(name: str, dump_path: str = DEFAULT_DUMP_PATH) -> str:
    """Return the text of an acl.json that CANN accepts.

    Parameters
    ----------
    name
        One of `PRESETS`.
    dump_path
        The folder that CANN is to dump into; it must be there before the program starts.

    Raises
    ------
    OptionsError
        There is no such preset, or CANN would refuse the folder.
    """
    if name not in _SETTINGS:
        raise OptionsError(f"there is no preset {name!r}: choose among {', '.join(PRESETS)}")
    try:
        dump_path.encode()
    except UnicodeEncodeError as error:
        raise OptionsError(f"the dump path {dump_path!r} is not UTF-8 text") from error
    document = {"dump": {"dump_path": dump_path, **_SETTINGS[name]}}
    for issue in check_document(document):
        raise OptionsError(f"CANN would refuse this acl.json: {issue.key}: {issue.message}")
    return json.dumps(document, indent=2, ensure_ascii=True) + "\n"
