"""acl.json: read it, check it as CANN does, write one to start from."""

from __future__ import annotations

from dumpscope.aclconfig.loading import AclConfig, is_config, load_config
from dumpscope.aclconfig.presets import DEFAULT_DUMP_PATH, PRESETS, preset
from dumpscope.aclconfig.rules import check_config
from dumpscope.aclconfig.values import Issue

__all__ = [
    "DEFAULT_DUMP_PATH",
    "PRESETS",
    "AclConfig",
    "Issue",
    "check_config",
    "is_config",
    "load_config",
    "preset",
]
