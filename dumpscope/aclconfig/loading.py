"""acl.json: what a dump was asked for, and where it went.

The file is read generously (comments, trailing commas), since what matters is finding the dump;
rules.py says what CANN itself would refuse.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Literal

from dumpscope.aclconfig.values import EXCEPTION_SCENES, extend_path, parse_steps, split_address
from dumpscope.errors import ConfigError
from dumpscope.records import record
from dumpscope.regexes import regex
from dumpscope.safetext import make_printable

__all__ = ["MAX_CONFIG_BYTES", "MAX_JSON5_BYTES", "AclConfig", "is_config", "load_config"]

MAX_CONFIG_BYTES = 1 << 20
"""An acl.json is a few hundred bytes; what is larger than this is something else."""

MAX_JSON5_BYTES = 128 << 10
"""The json5 reader takes seconds for more than this."""


_MAX_FACT_LAYERS = 100
_MAX_KEY_PATH = 300
_JSON5_PLACE = regex(r"^<string>:([0-9]+) ")
_DUMP_KEY = regex(r"\bdump[\"']?\s{0,99}:")


@record(frozen=True, slots=True)
class AclConfig:
    """An acl.json and what follows from it. Settings that CANN would refuse have their default.

    Attributes
    ----------
    path
        The file, absolute.
    document
        All that the file says.
    strict
        False where the file holds comments, trailing commas or other things that CANN refuses.
    strict_fault
        What stopped a strict reader, `""` when strict.
    repeated_keys
        Paths of keys that one object holds twice; the last one counts.
    dump_path
        As written, `None` when missing.
    dump_folders
        Where the dump can be, best first, absolute: a relative path is looked for beside the file,
        then in the current folder.
    steps
        Intervals of steps, both ends included; empty means all.
    model_names, layers
        What dump_list asks for; empty means all.
    """

    path: str
    document: Mapping[str, object]
    strict: bool = True
    strict_fault: str = ""
    repeated_keys: tuple[str, ...] = ()
    dump_path: str | None = None
    dump_folders: tuple[str, ...] = ()
    dump_mode: str = "output"
    dump_data: str = "tensor"
    dump_scene: str | None = None
    dump_debug: bool = False
    dump_op_switch: bool = False
    steps: tuple[tuple[int, int], ...] = ()
    model_names: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    dump: Mapping[str, object] = field(default_factory=dict)

    @property
    def expects(self) -> Literal["overflow", "model"]:
        """What an empty folder means: nothing overflowed, or nothing was dumped."""
        return "overflow" if self.dump_debug else "model"

    @property
    def has_inputs(self) -> bool:
        """Whether operators were dumped with their inputs."""
        return self.dump_debug or self.dump_mode != "output"

    def asks_for_step(self, step: int) -> bool:
        """Say whether a step was to be dumped."""
        return not self.steps or any(first <= step <= last for first, last in self.steps)

    def dump_path_candidates(self) -> tuple[str, ...]:
        """Where the dump can be, best first, absolute."""
        return self.dump_folders

    def find_dump_folder(self) -> str | None:
        """Return the first candidate that is a folder, `None` when none is."""
        return next((folder for folder in self.dump_folders if os.path.isdir(folder)), None)

    def facts(self) -> dict[str, object]:
        """Return what a result keeps of the configuration: plain JSON values."""
        return {
            "path": self.path,
            "expects": self.expects,
            "strict_json": self.strict,
            "dump_path": self.dump_path,
            "dump_mode": self.dump_mode,
            "dump_data": self.dump_data,
            "dump_debug": "on" if self.dump_debug else "off",
            "dump_op_switch": "on" if self.dump_op_switch else "off",
            "dump_scene": self.dump_scene,
            "dump_step": "|".join(
                str(first) if first == last else f"{first}-{last}" for first, last in self.steps
            ),
            "model_names": list(self.model_names),
            "layers": list(self.layers[:_MAX_FACT_LAYERS]),
        }


def load_config(
    path: str | os.PathLike[str],
    *,
    environ: Mapping[str, str] | None = None,
    current_folder: str | None = None,
) -> AclConfig:
    """Read an acl.json.

    Parameters
    ----------
    path
        The file.
    environ
        Where ASCEND_DUMP_PATH and ASCEND_WORK_PATH are looked up, by default the process's own.
    current_folder
        The folder that a relative dump_path is looked for in last.

    Raises
    ------
    ConfigError
        The file cannot be read, is too large, or is no JSON object even with comments.
    """
    name = os.path.abspath(os.fspath(path))
    text = _read_text(name)
    repeated: _Repeated = []
    fault = ""
    try:
        document = _parse_strict(text, repeated)
    except (ValueError, RecursionError) as error:
        fault = _describe(error)
        repeated.clear()
        document = _parse_generously(name, text, fault, repeated)
    if not isinstance(document, dict):
        raise ConfigError(f"{name}: expected an object, found {type(document).__name__}")
    dump = document.get("dump")
    if not isinstance(dump, dict):
        dump = {}
    scene = dump.get("dump_scene")
    dump_path = _text(dump, "dump_path")
    entries = [e for e in _array(dump, "dump_list") if isinstance(e, dict)]
    return AclConfig(
        path=name,
        document=MappingProxyType(document),
        strict=not fault,
        strict_fault=fault,
        repeated_keys=tuple(_name_paths(document, repeated)),
        dump_path=dump_path,
        dump_folders=_find_candidates(
            dump_path,
            os.path.dirname(name),
            os.getcwd() if current_folder is None else current_folder,
            os.environ if environ is None else environ,
            on_exception=scene in EXCEPTION_SCENES if isinstance(scene, str) else False,
        ),
        dump_mode=_choose(dump, "dump_mode", ("output", "input", "all")),
        dump_data=_choose(dump, "dump_data", ("tensor", "stats")),
        dump_scene=scene if isinstance(scene, str) else None,
        dump_debug=dump.get("dump_debug") == "on",
        dump_op_switch=dump.get("dump_op_switch") == "on",
        steps=parse_steps(_text(dump, "dump_step") or "") or (),
        model_names=tuple(n for e in entries if (n := _text(e, "model_name"))),
        layers=tuple(n for e in entries for n in _array(e, "layer") if isinstance(n, str)),
        dump=MappingProxyType(dump),
    )


def is_config(path: str | os.PathLike[str]) -> bool:
    """Say whether a PATH is an acl.json rather than a dump.

    True for a small json file with an object under `dump`, and for every file that is called
    acl.json: reading it says why it names no dump.
    """
    name = os.fspath(path)
    if not name.endswith(".json") or not os.path.isfile(name):
        return False
    if os.path.basename(name) == "acl.json":
        return True
    try:
        if _DUMP_KEY.search(_read_text(name)) is None:
            return False  # msprobe's dump.json, which is slow to read when it holds NaN
        config = load_config(name)
    except ConfigError:
        return False
    return isinstance(config.document.get("dump"), dict)


def _read_text(name: str) -> str:
    try:
        # O_NONBLOCK: a fifo of that name must not hang.
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"{name}: expected an acl.json of at most {MAX_CONFIG_BYTES} bytes, found more"
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} at 0x{error.start:x}: expected UTF-8 text") from error


_Repeated = list[tuple[dict[str, object], str]]
"""Objects, and a key of each that stands in it twice."""


def _keep_pairs(
    repeated: _Repeated,
) -> Callable[[Iterable[tuple[str, object]]], dict[str, object]]:
    """Make the hook that builds an object and notes keys which stand in it twice."""

    def build(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key, value in pairs:
            if key in mapping:
                repeated.append((mapping, key))
            mapping[key] = value
        return mapping

    return build


def _name_paths(document: object, repeated: _Repeated) -> Iterator[str]:
    """Yield the paths of repeated keys.

    Only the key is told of an object that a later value replaced, and deeper than an acl.json goes.
    """
    path_of: dict[int, str] = {}
    ahead: list[tuple[str, object]] = [("", document)] if repeated else []
    while ahead:
        path, value = ahead.pop()
        if len(path) > _MAX_KEY_PATH:
            continue
        if isinstance(value, dict):
            path_of[id(value)] = path
            ahead += ((extend_path(path, key), inner) for key, inner in value.items())
        elif isinstance(value, list):
            ahead += ((f"{path}[{index}]", inner) for index, inner in enumerate(value))
    for mapping, key in repeated:
        yield extend_path(path_of.get(id(mapping), ""), key)


def _refuse_constant(token: str) -> object:
    raise ValueError(f"{token} is not JSON")


def _parse_strict(text: str, repeated: _Repeated) -> object:
    return json.loads(
        text, object_pairs_hook=_keep_pairs(repeated), parse_constant=_refuse_constant
    )


def _parse_generously(name: str, text: str, fault: str, repeated: _Repeated) -> object:
    """Read JSON with comments and trailing commas."""
    import json5

    if len(text) > MAX_JSON5_BYTES:
        raise ConfigError(
            f"{name}: no strict JSON ({fault}), and with {len(text)} characters too large to be "
            f"read with comments: take them out, or keep it below {MAX_JSON5_BYTES}"
        )
    try:
        return json5.loads(text, object_pairs_hook=_keep_pairs(repeated))
    except (ValueError, RecursionError) as error:
        # The strict reader stopped at the first comment: json5 knows where the fault is.
        what = _JSON5_PLACE.sub(r"line \1: ", make_printable(_describe(error)))
        raise ConfigError(f"{name}: no JSON, even with comments allowed: {what}") from error


def _describe(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}, column {error.colno}: {error.msg}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(error)


def _text(mapping: Mapping[str, object], key: str) -> str | None:
    value = mapping.get(key)
    return value if isinstance(value, str) else None


def _array(mapping: Mapping[str, object], key: str) -> list[object]:
    value = mapping.get(key)
    return value if isinstance(value, list) else []


def _choose(mapping: Mapping[str, object], key: str, allowed: tuple[str, ...]) -> str:
    """Return a setting, its default (the first one) where it is missing or not allowed."""
    value = mapping.get(key)
    return value if isinstance(value, str) and value in allowed else allowed[0]


def _find_candidates(
    dump_path: str | None,
    beside: str,
    current_folder: str,
    environ: Mapping[str, str],
    *,
    on_exception: bool,
) -> tuple[str, ...]:
    """List where the dump can be, best first."""
    candidates: list[str] = []
    if on_exception:
        # CANN prefers the variables, and writes below the working folder without any path.
        named = (environ.get(name) for name in ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH"))
        candidates += (os.path.join(current_folder, value) for value in named if value)
        dump_path = dump_path or "extra-info"
    if dump_path:
        _, folder = split_address(dump_path)
        if folder:
            candidates += (os.path.join(beside, folder), os.path.join(current_folder, folder))
    return tuple(dict.fromkeys(os.path.normpath(c) for c in candidates if "\0" not in c))
