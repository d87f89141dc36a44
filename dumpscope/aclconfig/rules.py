"""What CANN accepts in an acl.json, as rules over the parsed document.

Types and values of every key are checked first; which of the other rules are checked depends on
what the file turns on (an exception scene, the watcher, overflow detection), and so it is here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from dumpscope.aclconfig.loading import AclConfig
from dumpscope.aclconfig.values import (
    BLACKLISTS,
    EXCEPTION_SCENES,
    MAX_INTERVALS,
    RANGE_KEYS,
    STATS,
    Issue,
    check_keys,
    check_values,
    kind_of,
    make_error,
    make_warning,
    parse_steps,
    quote_all,
    shorten,
    split_address,
)

__all__ = ["check_config", "check_document"]

_TOP_KEYS = ("dump", "profiler", "max_opqueue_num", "err_msg_mode", "defaultDevice", "acl_graph")
_MAX_PATH = 512


def check_config(config: AclConfig) -> list[Issue]:
    """Say what CANN would refuse (errors) and what is doubtful (warnings) in an acl.json."""
    issues: list[Issue] = []
    if not config.strict:
        issues.append(
            make_error(
                "",
                "comments, trailing commas and the like are read here, but CANN refuses them: "
                "{fault}",
                fault=str(config.strict_fault),
            )
        )
    issues += (
        make_warning(key, "is there twice in one object; the last one counts")
        for key in config.repeated_keys
    )
    issues += check_document(config.document)
    issues += _check_folder(config)
    return issues


def check_document(document: Mapping[str, object]) -> list[Issue]:
    """Apply all rules that need nothing but the document, in the order of its keys."""
    issues = list(check_keys(document, _TOP_KEYS, ""))
    if "dump" not in document:
        issues.append(make_error("dump", "missing: expected an object with the dump's settings"))
        return issues
    dump = document["dump"]
    if not isinstance(dump, Mapping):
        issues.append(make_error("dump", "expected an object, found {found}", found=kind_of(dump)))
        return issues
    issues += check_values(dump)
    issues += _check_rules(dump)
    return issues


def _check_rules(dump: Mapping[str, object]) -> Iterator[Issue]:
    scene = dump.get("dump_scene")
    if not isinstance(scene, str):
        scene = None
    if scene in EXCEPTION_SCENES:
        yield from _check_conflicts(
            dump,
            "the exception scene {scene} excludes {name} 'on': turn one of them off",
            scene=repr(scene),
        )
        return
    yield from _check_path(dump)
    if scene == "watcher":
        yield from _check_conflicts(
            dump, "the scene 'watcher' excludes {name} 'on': turn one of them off"
        )
        yield from _check_watcher(dump)
    if dump.get("dump_debug") == "on":
        if dump.get("dump_op_switch") == "on" and scene != "watcher":
            yield make_error(
                "dump.dump_debug",
                "overflow detection excludes dump_op_switch 'on': turn one of them off",
            )
        return
    yield from _check_step(dump)
    yield from _check_entries(dump, watching=scene == "watcher")
    yield from _check_stats_use(dump)


def _check_conflicts(dump: Mapping[str, object], template: str, **scene: str) -> Iterator[Issue]:
    for name in ("dump_debug", "dump_op_switch"):
        if dump.get(name) == "on":
            yield make_error("dump.dump_scene", template, name=name, **scene)


def _check_path(dump: Mapping[str, object]) -> Iterator[Issue]:
    key = "dump.dump_path"
    if "dump_path" not in dump:
        yield make_error(key, "missing: expected the folder to dump into")
        return
    path = dump["dump_path"]
    if not isinstance(path, str):
        return
    if len(path) > _MAX_PATH:
        yield make_error(
            key,
            "expected at most {most} characters, found {found}",
            most=str(_MAX_PATH),
            found=str(len(path)),
        )
    _, folder = split_address(path)
    if not path:
        yield make_error(key, "empty: expected the folder to dump into")
    elif not folder:
        yield make_error(key, "expected a folder behind the address, found none")


def _check_watcher(dump: Mapping[str, object]) -> Iterator[Issue]:
    mode = dump.get("dump_mode", "output")
    if isinstance(mode, str) and mode != "output":
        yield make_error(
            "dump.dump_mode",
            "the scene 'watcher' allows only 'output', not {mode}",
            mode=repr(mode),
        )
    entries = dump.get("dump_list")
    if not entries:
        yield make_warning("dump.dump_list", "no watcher_nodes, so nothing is watched")
    for key, entry in _entries(dump):
        if not entry.get("watcher_nodes"):
            yield make_error(f"{key}.watcher_nodes", "the scene 'watcher' needs the nodes to watch")
        if "model_name" in entry:
            yield make_error(f"{key}.model_name", "not allowed with the scene 'watcher'")


def _check_step(dump: Mapping[str, object]) -> Iterator[Issue]:
    step = dump.get("dump_step", "")
    if not isinstance(step, str) or parse_steps(step) is not None:
        return
    if step.count("|") >= MAX_INTERVALS:
        yield make_error(
            "dump.dump_step",
            "expected at most {most} intervals 'n' or 'n-m' with n <= m, joined by '|', found "
            "{count} of them",
            most=str(MAX_INTERVALS),
            count=str(step.count("|") + 1),
        )
    else:
        yield make_error(
            "dump.dump_step",
            "expected at most {most} intervals 'n' or 'n-m' with n <= m, joined by '|', found "
            "{text}",
            most=str(MAX_INTERVALS),
            text=repr(shorten(step)),
        )


def _check_entries(dump: Mapping[str, object], *, watching: bool) -> Iterator[Issue]:
    level = dump.get("dump_level", "all")
    seen: set[str] = set()
    for key, entry in _entries(dump):
        model = entry.get("model_name")
        if model == "":
            yield make_error(f"{key}.model_name", "empty: name a model or leave the key out")
        elif isinstance(model, str) and model in seen:
            yield make_warning(
                f"{key}.model_name", "{value} is there twice", value=repr(shorten(model))
            )
        elif isinstance(model, str):
            seen.add(model)
        if entry.get("layer") == []:
            yield make_error(f"{key}.layer", "empty: name operators or leave the key out")
        if "watcher_nodes" in entry and not watching:
            yield make_error(f"{key}.watcher_nodes", "allowed only with dump_scene 'watcher'")
        for name in (*BLACKLISTS, "opname_range"):
            if name in entry and level != "op":
                yield make_error(
                    f"{key}.{name}",
                    "allowed only with dump_level 'op', not {level}",
                    level=_show(level),
                )
        if "opname_range" in entry:
            yield from _check_ranges(key, entry)


def _check_ranges(key: str, entry: Mapping[str, object]) -> Iterator[Issue]:
    if not entry.get("model_name"):
        yield make_error(f"{key}.opname_range", "needs a model_name beside it")
    ranges = entry["opname_range"]
    for index, item in enumerate(ranges if isinstance(ranges, list) else ()):
        if isinstance(item, Mapping):
            for name in RANGE_KEYS:
                if item.get(name, "") == "":
                    yield make_error(
                        f"{key}.opname_range[{index}].{name}", "missing: expected an operator"
                    )


def _check_stats_use(dump: Mapping[str, object]) -> Iterator[Issue]:
    if "dump_stats" not in dump:
        return
    if dump.get("dump_data", "tensor") != "stats":
        yield make_error("dump.dump_stats", "allowed only with dump_data 'stats'")
    if dump["dump_stats"] == []:
        yield make_error(
            "dump.dump_stats", "empty: choose among {allowed}", allowed=quote_all(STATS)
        )


def _entries(dump: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the objects of dump_list with their key paths."""
    entries = dump.get("dump_list")
    if isinstance(entries, list):
        for index, entry in enumerate(entries):
            if isinstance(entry, Mapping):
                yield f"dump.dump_list[{index}]", entry


def _check_folder(config: AclConfig) -> list[Issue]:
    """Warn where the dump folder is not one that CANN can write into on this machine."""
    if not config.dump_path or config.dump_scene in EXCEPTION_SCENES:
        return []
    address, _ = split_address(config.dump_path)
    if address is not None:
        return []
    folder = config.find_dump_folder()
    if folder is None:
        template = (
            "{path} is no folder on this machine: CANN needs it to be there when the program starts"
        )
    elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        template = "{path} cannot be read and written by this user, which CANN needs"
    else:
        return []
    return [make_warning("dump.dump_path", template, path=repr(config.dump_path))]


def _show(value: object) -> str:
    return repr(shorten(value)) if isinstance(value, str) else kind_of(value)
