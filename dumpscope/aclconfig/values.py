"""Types and allowed values of the keys of an acl.json.

CANN checks them before anything else, whatever the file turns on. Source: the reference of
`aclmdlSetDump` and `aclInit`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from ipaddress import AddressValueError, IPv4Address
from types import MappingProxyType
from typing import Literal

from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = [
    "ALLOWED",
    "BLACKLISTS",
    "EXCEPTION_SCENES",
    "MAX_INTERVALS",
    "RANGE_KEYS",
    "STATS",
    "Issue",
    "check_keys",
    "check_values",
    "extend_path",
    "kind_of",
    "make_error",
    "make_warning",
    "parse_steps",
    "quote_all",
    "shorten",
    "split_address",
]

EXCEPTION_SCENES = frozenset(
    {"lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump"}
)
"""Values of dump_scene that dump operators which failed; the remaining one is `watcher`."""

ALLOWED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dump_mode": ("input", "output", "all"),
        "dump_data": ("tensor", "stats"),
        "dump_level": ("op", "kernel", "all"),
        "dump_op_switch": ("on", "off"),
        "dump_debug": ("on", "off"),
        "dump_scene": (
            "lite_exception",
            "aic_err_brief_dump",
            "aic_err_norm_dump",
            "aic_err_detail_dump",
            "watcher",
        ),
    }
)

STATS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
_KERNEL_DATA = ("all", "printf", "tensor", "assert", "timestamp")
_DUMP_KEYS = (
    *ALLOWED,
    "dump_path",
    "dump_step",
    "dump_list",
    "dump_stats",
    "dump_kernel_data",
)
_ENTRY_KEYS = (
    "model_name",
    "layer",
    "watcher_nodes",
    "optype_blacklist",
    "opname_blacklist",
    "opname_range",
)
BLACKLISTS = ("optype_blacklist", "opname_blacklist")

MAX_INTERVALS = 100
_MAX_BLACKLIST = 100
_INTERVAL = regex(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_SHOWN = 60

_Checker = Callable[[str, object], Iterator["Issue"]]


@record(frozen=True, slots=True)
class Issue:
    """One thing about an acl.json: an error is what CANN would refuse.

    `key` is the path to the value (`dump.dump_list[0].layer`), empty for the file as a whole.
    `message` is English: `template` with its `{name}`s filled in from `parameters`, by which
    `words.acl` puts it into another language.
    """

    severity: Literal["error", "warning"]
    key: str
    message: str
    template: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"{self.key}: " if self.key else ""
        return f"{self.severity}: {where}{self.message}"


def parse_steps(text: str) -> tuple[tuple[int, int], ...] | None:
    """Read `0|3-5|10` into intervals, both ends included.

    Returns
    -------
    tuple of (first, last), or None
        Empty for an empty text, `None` when CANN would refuse the text.
    """
    if not text:
        return ()
    intervals = []
    for part in text.split("|", MAX_INTERVALS):
        match = _INTERVAL.fullmatch(part)
        if match is None:
            return None
        first = int(match[1])
        last = int(match[2] or match[1])
        if first > last:
            return None
        intervals.append((first, last))
    return tuple(intervals) if len(intervals) <= MAX_INTERVALS else None


def split_address(path: str) -> tuple[str | None, str]:
    """Split `10.0.0.1:/dump` into address and folder; a local path has the address `None`."""
    head, colon, rest = path.partition(":")
    if colon:
        try:
            return str(IPv4Address(head)), rest
        except AddressValueError:
            pass
    return None, path


def check_keys(mapping: Mapping[str, object], known: Sequence[str], key: str) -> Iterator[Issue]:
    """Warn about keys that nobody reads."""
    for name in mapping:
        if name not in known:
            here = extend_path(key, name)
            near = difflib.get_close_matches(name.lower()[:_SHOWN], known, n=1)
            if near:
                yield make_warning(
                    here, "unknown key, CANN ignores it; did you mean {near}?", near=repr(near[0])
                )
            else:
                yield make_warning(
                    here,
                    "unknown key, CANN ignores it; known keys: {known}",
                    known=", ".join(known),
                )


def check_values(dump: Mapping[str, object]) -> Iterator[Issue]:
    """Check every key of the object under `dump` by itself."""
    yield from check_keys(dump, _DUMP_KEYS, "dump")
    for name, value in dump.items():
        key = f"dump.{name}"
        if name in ALLOWED:
            yield from _check_choice(key, value, ALLOWED[name])
        elif name in ("dump_path", "dump_step"):
            yield from _check_string(key, value)
        elif name == "dump_kernel_data":
            yield from _check_kernel_data(key, value)
        elif name == "dump_stats":
            yield from _check_stats(key, value)
        elif name == "dump_list":
            yield from _check_list(key, value)


def _check_string(key: str, value: object) -> Iterator[Issue]:
    if not isinstance(value, str):
        yield make_error(key, "expected a string, found {found}", found=kind_of(value))


def _check_choice(key: str, value: object, allowed: Sequence[str]) -> Iterator[Issue]:
    if not isinstance(value, str):
        yield make_error(
            key,
            "expected one of {allowed}, found {found}",
            allowed=quote_all(allowed),
            found=kind_of(value),
        )
    elif value not in allowed:
        near = difflib.get_close_matches(value.lower()[:_SHOWN], allowed, n=1)
        said = {"value": repr(shorten(value)), "allowed": quote_all(allowed)}
        if near:
            yield make_error(
                key,
                "{value} is not allowed, only {allowed}; did you mean {near}?",
                near=repr(near[0]),
                **said,
            )
        else:
            yield make_error(key, "{value} is not allowed, only {allowed}", **said)


def _check_kernel_data(key: str, value: object) -> Iterator[Issue]:
    if not isinstance(value, str):
        yield make_error(key, "expected a string, found {found}", found=kind_of(value))
        return
    for part in value.split(","):
        if part not in _KERNEL_DATA:
            yield make_error(
                key,
                "{value} is not allowed, only {allowed} joined by commas without spaces",
                value=repr(shorten(part)),
                allowed=quote_all(_KERNEL_DATA),
            )
            return


def _check_stats(key: str, value: object) -> Iterator[Issue]:
    if not isinstance(value, list):
        yield make_error(key, "expected an array of strings, found {found}", found=kind_of(value))
        return
    for index, item in enumerate(value):
        yield from _check_choice(f"{key}[{index}]", item, STATS)


def _check_list(key: str, value: object) -> Iterator[Issue]:
    if not isinstance(value, list):
        yield make_error(key, "expected an array of objects, found {found}", found=kind_of(value))
        return
    for index, entry in enumerate(value):
        here = f"{key}[{index}]"
        if not isinstance(entry, Mapping):
            yield make_error(here, "expected an object, found {found}", found=kind_of(entry))
            continue
        yield from check_keys(entry, _ENTRY_KEYS, here)
        if "model_name" in entry:
            yield from _check_string(f"{here}.model_name", entry["model_name"])
        for name in ("layer", "watcher_nodes"):
            if name in entry:
                yield from _check_strings(f"{here}.{name}", entry[name])
        for name in BLACKLISTS:
            if name in entry:
                yield from _check_blacklist(f"{here}.{name}", entry[name])
        if "opname_range" in entry:
            yield from _check_records(f"{here}.opname_range", entry["opname_range"], _RANGE)


def _check_strings(key: str, value: object) -> Iterator[Issue]:
    if not isinstance(value, list):
        yield make_error(key, "expected an array of strings, found {found}", found=kind_of(value))
        return
    for index, item in enumerate(value):
        yield from _check_string(f"{key}[{index}]", item)


RANGE_KEYS = ("begin", "end")
_RANGE: Mapping[str, _Checker] = dict.fromkeys(RANGE_KEYS, _check_string)
_BLACKLIST: Mapping[str, _Checker] = {"name": _check_string, "pos": _check_strings}


def _check_blacklist(key: str, value: object) -> Iterator[Issue]:
    yield from _check_records(key, value, _BLACKLIST)
    if not isinstance(value, list):
        return
    if len(value) > _MAX_BLACKLIST:
        yield make_error(
            key,
            "expected at most {most} entries, found {found}",
            most=str(_MAX_BLACKLIST),
            found=str(len(value)),
        )
    for index, entry in enumerate(value):
        if isinstance(entry, Mapping):
            for name in _BLACKLIST:
                if not entry.get(name):
                    yield make_warning(
                        f"{key}[{index}].{name}", "empty, so the entry has no effect"
                    )


def _check_records(key: str, value: object, fields: Mapping[str, _Checker]) -> Iterator[Issue]:
    """Check an array of objects whose fields have one checker each."""
    if not isinstance(value, list):
        yield make_error(key, "expected an array of objects, found {found}", found=kind_of(value))
        return
    for index, entry in enumerate(value):
        here = f"{key}[{index}]"
        if not isinstance(entry, Mapping):
            yield make_error(here, "expected an object, found {found}", found=kind_of(entry))
            continue
        yield from check_keys(entry, tuple(fields), here)
        for name, check in fields.items():
            if name in entry:
                yield from check(f"{here}.{name}", entry[name])


def make_error(key: str, template: str, **parameters: str) -> Issue:
    """Make what CANN would refuse; the template is one of `words.acl`."""
    return Issue("error", key, template.format(**parameters), template, parameters)


def make_warning(key: str, template: str, **parameters: str) -> Issue:
    """Make what CANN accepts and is doubtful; the template is one of `words.acl`."""
    return Issue("warning", key, template.format(**parameters), template, parameters)


def extend_path(key: str, name: str) -> str:
    """Return the path of what is called `name` in the object at `key`."""
    return f"{key}.{shorten(name)}" if key else shorten(name)


def shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def quote_all(values: Sequence[str]) -> str:
    return ", ".join(repr(value) for value in values)


def kind_of(value: object) -> str:
    """Name a JSON value by its kind."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return f"the string {shorten(value)!r}"
    return "an array" if isinstance(value, list) else "an object"
