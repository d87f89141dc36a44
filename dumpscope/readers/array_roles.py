"""What the keys of array containers say about the arrays under them.

People's hooks save tensors as `{"input": …, "output": …}`, `inputs.0`, `grad_output`, or in files
called `nan_input.pt` and `debug_Softmax_out.pt`. An operator's backward takes `grad_output` in
and gives `grad_input` out, so those two are the other way round.
"""

from __future__ import annotations

import re

from dumpscope.model import Role
from dumpscope.regexes import regex

__all__ = ["locate_key", "role_of_key", "role_of_stem", "split_key"]

_INPUT_WORDS = frozenset(
    {
        "arg",
        "args",
        "grad_out",
        "grad_output",
        "grad_outputs",
        "in",
        "input",
        "input_args",
        "input_kwargs",
        "inputs",
        "kwargs",
    }
)
_OUTPUT_WORDS = frozenset(
    {
        "grad_in",
        "grad_input",
        "grad_inputs",
        "out",
        "output",
        "outputs",
        "result",
        "results",
        "ret",
    }
)

_NUMBERED = regex(r"(.*?)[\s_./\-\[]*([0-9]{1,6})\]?", re.DOTALL)
_SEPARATOR = regex(r"[./]")
_CAMEL = regex(r"(?<=[a-z])(?=[A-Z])")
_STEM_WORD = regex(
    r"(?:^|[_.\-])(grad_(?:in|out)(?:puts?)?|inputs?|outputs?|out|args)(?:[_.\-]?[0-9]{1,6})?$",
    re.IGNORECASE,
)


def role_of_key(key: str) -> tuple[Role, ...]:
    """Say which role a container's key gives to what lies under it.

    Parameters
    ----------
    key
        One key, with or without a number behind it: `input`, `outputs.0`, `gradOutput`.

    Returns
    -------
    tuple of Role
        One role, or `()` when the key says nothing.
    """
    role = split_key(key)[0]
    return () if role is None else (role,)


def split_key(key: str) -> tuple[Role | None, int | None]:
    """Return the role that a key gives and the number at its end, each `None` without one."""
    role = _role_of_word(key)
    if role is not None:
        return role, None
    match = _NUMBERED.fullmatch(key) if len(key) <= 256 else None
    if match is None:
        return None, None
    return _role_of_word(match[1]), int(match[2])


def locate_key(key: str) -> tuple[str, Role | None, int | None]:
    """Take a key with dots or slashes apart.

    Returns
    -------
    owner : str
        What stands before the role: `layer1` in `layer1.input.0`; the whole key without one.
    role : Role or None
    index : int or None
        The number behind the role.
    """
    parts = _SEPARATOR.split(key)
    for count in (1, 2):
        if len(parts) < count:
            break
        word = ".".join(parts[-count:])
        role, index = split_key(word)
        if role is not None:
            return ".".join(parts[:-count]), role, index
    return key, None, None


def role_of_stem(stem: str) -> Role | None:
    """Return the role that a file's name without its suffix gives to the arrays in it.

    Only its last word counts: `nan_input`, `debug_Softmax_out`, `conv1.output.0`.
    """
    match = _STEM_WORD.search(stem[-64:])
    return None if match is None else _role_of_word(match[1])


def _role_of_word(word: str) -> Role | None:
    """Look a word up, whatever its case."""
    if len(word) > 32:
        return None
    plain = _CAMEL.sub("_", word.strip()).lower().replace("-", "_")
    if plain in _INPUT_WORDS:
        return "input"
    if plain in _OUTPUT_WORDS:
        return "output"
    return None
