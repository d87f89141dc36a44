"""What the names in an msprobe dump say.

Keys of `dump.json` and `debug.json`, counted from the right because paths hold dots::

    {Prefix}.{api}.{n}.{forward|backward}                  an API: Torch.exp.0.forward
    {Module|Cell}.{path}.{Class}.{forward|backward}.{n}    a module: Module.fc.Linear.backward.0
    {Module|Cell}.{path}.{Class}.parameters_grad[.{n}]     its gradients (8.3.x: without a number)
    {name}.{n}.debug                                       a variable saved by hand

and of the files in `dump_tensor_data`, which continue such a key::

    {key}.{input|output|kwargs|parameters}.{path}.{pt|npy}
    {parameters_grad key}.{parameter}.{pt|npy}
    {debug key}[.{path}].{pt|npy}

Facts from the tool's documentation and from real dumps of mindstudio-probe 8.3.3 and 26.2.0.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from dumpscope.model import Role
from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = [
    "ProbeName",
    "ProbeTensorName",
    "forward_twin",
    "is_parameter",
    "module_backward",
    "parse_probe_name",
    "parse_probe_tensor",
]

ProbeKind = Literal["api", "module", "parameters_grad", "debug", "other"]

_LONGEST = 4096
_DIGITS = r"[0-9]{1,9}"
_API = regex(rf"(.+)\.({_DIGITS})\.(forward|backward)", re.DOTALL)
_MODULE = regex(rf"((?:Module|Cell)\..+)\.(forward|backward)\.({_DIGITS})", re.DOTALL)
_GRADS = regex(rf"((?:Module|Cell)\..+)\.parameters_grad(?:\.({_DIGITS}))?", re.DOTALL)
_DEBUG = regex(rf"(.+)\.({_DIGITS})\.debug", re.DOTALL)

# The same keys at the start of a file's name. The greedy part takes the last place that fits.
_TENSOR_OF_OP = regex(
    rf"((?:(?:Module|Cell)\..+\.(?:forward|backward)\.{_DIGITS}|.+\.{_DIGITS}\.(?:forward|backward)))"
    r"\.(input|output|kwargs|parameters)(?:\.(.+))?",
    re.DOTALL,
)
_TENSOR_OF_GRADS = regex(
    rf"((?:Module|Cell)\..+\.parameters_grad(?:\.{_DIGITS})?)\.([^.].*)", re.DOTALL
)
_TENSOR_OF_DEBUG = regex(rf"(.+?\.{_DIGITS}\.debug)(?:\.(.+))?", re.DOTALL)
_POSITION = regex(rf"({_DIGITS})", re.ASCII)
_SUFFIXES = (".pt", ".npy")


@record(frozen=True, slots=True)
class ProbeName:
    """A key of `dump.json`, taken apart.

    Attributes
    ----------
    op_type
        The API with its prefix (`Torch.exp`), a module's class (`Linear`), or `debug`.
    stem
        The key without direction and number: `Torch.exp`, `Module.fc.Linear`, `scores`.
    index
        The number of the call, `None` without one.
    direction
        "forward", "backward" or "" (gradients of parameters and variables).
    """

    kind: ProbeKind
    op_type: str
    stem: str
    index: int | None = None
    direction: str = ""

    @property
    def container(self) -> bool:
        """Whether other operators ran inside it."""
        return self.kind == "module"


@record(frozen=True, slots=True)
class ProbeTensorName:
    """A file of `dump_tensor_data`, taken apart.

    `index` is the position among the inputs or outputs where the name has it, and `path` what
    stands behind the key: `input.0`, `kwargs.mask`, `parameters.weight`.
    """

    op_name: str
    role: Role
    path: str
    index: int | None = None


@lru_cache(maxsize=4096)
def parse_probe_name(key: str) -> ProbeName:
    """Take a key of `dump.json` or `debug.json` apart; any text is a key of some kind."""
    if len(key) > _LONGEST:
        return ProbeName("other", key[:_LONGEST], key)
    match = _MODULE.fullmatch(key)
    if match is not None:
        stem, direction, number = match.groups()
        return ProbeName("module", stem.rpartition(".")[2], stem, int(number), direction)
    match = _GRADS.fullmatch(key)
    if match is not None:
        stem, number = match.groups()
        index = None if number is None else int(number)
        return ProbeName("parameters_grad", stem.rpartition(".")[2], stem, index)
    match = _API.fullmatch(key)
    if match is not None:
        stem, number, direction = match.groups()
        return ProbeName("api", stem, stem, int(number), direction)
    match = _DEBUG.fullmatch(key)
    if match is not None:
        stem, number = match.groups()
        return ProbeName("debug", "debug", stem, int(number))
    return ProbeName("other", key, key)


def forward_twin(op_name: str) -> str | None:
    """Return the key of the forward execution whose tensors a backward entry had saved.

    `Torch.sqrt.0.backward` saved what `Torch.sqrt.0.forward` read and wrote, and a module's
    gradients of parameters (`Module.fc.Linear.parameters_grad.0`) came out of the same tensors;
    8.3.x writes one such entry without a number, whose first call is taken.

    Returns
    -------
    str or None
        `None` for everything that is no backward entry of msprobe.
    """
    name = parse_probe_name(op_name)
    if name.kind == "api" and name.direction == "backward":
        return f"{name.stem}.{name.index}.forward"
    if name.kind == "parameters_grad" or (name.kind == "module" and name.direction == "backward"):
        return f"{name.stem}.forward.{name.index or 0}"
    return None


def module_backward(op_name: str) -> str | None:
    """Return the key of the module's backward in which gradients of parameters were made.

    Returns
    -------
    str or None
        `None` for everything that is no `parameters_grad` entry.
    """
    name = parse_probe_name(op_name)
    if name.kind != "parameters_grad":
        return None
    return f"{name.stem}.backward.{name.index or 0}"


def parse_probe_tensor(file_name: str) -> ProbeTensorName | None:
    """Take the name of a file in `dump_tensor_data` apart.

    Returns
    -------
    ProbeTensorName or None
        `None` when msprobe would not name a tensor file so.
    """
    stem = file_name
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    if stem == file_name or len(stem) > _LONGEST:
        return None
    match = _TENSOR_OF_OP.fullmatch(stem)
    if match is not None:
        op_name, category, rest = match.groups()
        path = category if rest is None else f"{category}.{rest}"
        role: Role = "output" if category == "output" else "input"
        plain = category in ("input", "output") and rest is not None
        position = _POSITION.fullmatch(rest) if plain else None
        return ProbeTensorName(op_name, role, path, int(position[1]) if position else None)
    match = _TENSOR_OF_GRADS.fullmatch(stem)
    if match is not None:
        op_name, parameter = match.groups()
        return ProbeTensorName(op_name, "output", parameter)
    match = _TENSOR_OF_DEBUG.fullmatch(stem)
    if match is not None:
        op_name, rest = match.groups()
        return ProbeTensorName(op_name, "output", rest or "")
    return None


def is_parameter(tensor_name: str | None) -> bool:
    """Whether an input is listed as a parameter of its module ("parameters.weight")."""
    return tensor_name is not None and tensor_name.startswith("parameters.")
