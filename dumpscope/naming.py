"""What the name of a dump file says.

The grammar (CANN's data dump manual, MindSpore's dump tutorial, the vendor's converter)::

    {op_type}.{op_name}.{task}.{stream}.{time}[.4.{context}.{thread}.{device}]
    {op_type}.{op_name}.{task}.{time}                          old writers, exception dumps
    exception_info.{stream}.{task}.{time}
    {kernel}.{stream}.{task}.{core type}.{core id}.{time}      exception dumps
    {op_name}.{output index}.{time}.npy                        TensorFlow and ONNX

each of the first two with a tail where a tool rewrote one tensor of it::

    .{input|output}.{i}[.{shape}][.{layout}][.{dtype}].{npy|bin|pt|json|csv}
    .space.{i}.bin      .{npy|bin|pt|csv|json}

Writers replace dots inside type and name by underscores, so the fields are counted from the
right. Every number is bounded, and only ASCII digits are numbers: a name is input like any other.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from types import MappingProxyType

from dumpscope.model import DumpName, Role
from dumpscope.regexes import regex

__all__ = [
    "is_archive_name",
    "is_overflow_name",
    "parse_name",
    "parse_run_time",
    "read_mapping",
    "real_name",
    "timestamp_ns",
]

_TIME = r"([0-9]{13,20}|[0-9]{10})"
_ID = r"([0-9]{1,10})"
_FFTS = rf"(?:\.4\.{_ID}\.{_ID}\.([0-9]{{1,5}}))?"  # a longer last field is a time
_SUFFIX = r"(npy|bin|pt|csv|json|txt)"
_TAIL = (
    r"(?:\.(?:(input|output|space|buffer)\.([0-9]{1,5})"
    rf"((?:\.[^.]*){{0,3}}?)\.)?{_SUFFIX})?"
)

_USUAL = regex(rf"([^.]+)\.([^.]*)\.{_ID}\.{_ID}\.{_TIME}")
_NAME = regex(rf"([^.]+)\.(.*)\.{_ID}\.{_ID}\.{_TIME}{_FFTS}{_TAIL}", re.DOTALL)
_NAME_WITHOUT_STREAM = regex(rf"([^.]+)\.(.*)\.{_ID}\.{_TIME}{_FFTS}{_TAIL}", re.DOTALL)
_GOLDEN = regex(rf"(.+)\.([0-9]{{1,5}})\.{_TIME}\.npy", re.DOTALL)
_EXCEPTION_INFO = regex(rf"(exception_info)\.{_ID}\.{_ID}\.{_TIME}")
_KERNEL = regex(
    rf"([^.]+)\.{_ID}\.{_ID}\.(?:[0-9]{{1,3}}|[A-Za-z_]\w{{0,31}})\.{_ID}\.{_TIME}", re.ASCII
)

_SHAPE = regex(r"(?:[0-9]{1,20}(?:[x_][0-9]{1,20}){0,63})?_?")
_DTYPE = regex(
    r"(?:dt_|torch\.)?(?:b?float\d*(?:_?e\d+m\d+\w*)?|[bf]p?\d+|hifloat\d+|[qu]{0,2}int\d+"
    r"|complex\d+|bool|double|half|string|dual\w*|resource|variant|undefined)",
    re.ASCII | re.IGNORECASE,
)

_UNKNOWN_IDS = frozenset({0xFFFF, 0xFFFFFFFF})
"""What writers put where they do not know a task or stream id (16 or 32 bits of ones)."""

_ROLES: Mapping[str, Role] = MappingProxyType({"input": "input", "output": "output"})

_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".txz", ".zst", ".7z", ".rar")

_MAX_MAPPED_NAME = 4096
_HASH = regex(r"[0-9]{1,24}|[0-9a-fA-F]{32}(?:\.[A-Za-z0-9]{1,8})?")
_HASH_STEM = regex(r"([0-9a-fA-F]{32})(\.[A-Za-z0-9]{1,8})")


def parse_name(name: str) -> DumpName | None:
    """Take a file's name apart.

    Parameters
    ----------
    name
        The name without folders; the real one where mapping.csv has it.

    Returns
    -------
    DumpName or None
        `None` when the name follows none of the patterns. `suffix` is the file type without its
        dot, `""` for a raw dump; a workspace has the suffix `space.bin`, and its number in `slot`.
        A golden file has no `op_type`.
    """
    match = _USUAL.fullmatch(name)  # by far the most frequent, and four times as fast
    if match is not None:
        op_type, op_name, task, stream, time = match.groups()
        return DumpName(op_type, op_name, _known(task), _known(stream), int(time))
    match = _NAME.fullmatch(name)
    if match is None:
        return _parse_rare(name)
    op_type, op_name, task, stream, time, context, thread, device, *tail = match.groups()
    if not op_name.strip("0123456789."):
        kernel = _parse_kernel(name)
        if kernel is not None:
            return kernel
    return _finish(op_type, op_name, task, stream, time, context, thread, device, tail)


def timestamp_ns(number: int) -> int | None:
    """Convert a timestamp to nanoseconds since 1970, its unit told by its number of digits.

    10 digits are seconds, 13 milliseconds, 15 and 16 microseconds, 19 nanoseconds; 14 and 17 are
    a date, YYYYMMDDhhmmss and milliseconds, which is taken for UTC: only differences count. Of 18
    and 20 no unit is on record; as fractions of a second behind ten digits they keep their order.

    Returns
    -------
    int or None
        `None` for any other number of digits, and for a date that is none.
    """
    if number < 1_000_000_000:
        return None
    if number < 10_000_000_000_000_000:
        if number >= 100_000_000_000_000:  # 15 and 16 digits
            return number * 1_000
        if number < 10_000_000_000:
            return number * 1_000_000_000
        if number >= 10_000_000_000_000:
            return _date_ns(number, 0)
        return number * 1_000_000 if number >= 1_000_000_000_000 else None
    if number < 100_000_000_000_000_000:
        return _date_ns(number // 1_000, number % 1_000)
    if number < 1_000_000_000_000_000_000:
        return number * 10
    if number < 10_000_000_000_000_000_000:
        return number
    return number // 10 if number < 100_000_000_000_000_000_000 else None


def parse_run_time(name: str) -> int | None:
    """Return the nanoseconds that a folder `YYYYMMDDhhmmss` stands for, `None` for any other."""
    if len(name) != 14 or not (name.isascii() and name.isdigit()) or name[:2] != "20":
        return None
    return timestamp_ns(int(name))


def is_overflow_name(name: DumpName) -> bool:
    """Say whether the file is an overflow record (`Opdebug.Node_OpDebug…`, in any case)."""
    return name.op_type.lower() == "opdebug"


def is_archive_name(name: str) -> bool:
    """Say whether a file is a packed copy of others, which nothing here looks into."""
    return name.lower().endswith(_ARCHIVES)


def read_mapping(lines: Iterable[str]) -> dict[str, str]:
    """Read the rows `hash,real name` of a mapping.csv.

    Rows may repeat (the first one counts), and what is no such row is passed over: several
    writers append to the file, and a job that dies leaves half a row. Only keys that can be
    hashes are taken, so that no row renames a file which has its own name.
    """
    mapping: dict[str, str] = {}
    for line in lines:
        key, comma, real = line.partition(",")
        if not comma:
            continue
        key = key.strip().lstrip("\ufeff")
        real = real.strip().rpartition("/")[2]
        if real and len(real) <= _MAX_MAPPED_NAME and _HASH.fullmatch(key):
            mapping.setdefault(key, real)
    return mapping


def real_name(name: str, mapping: dict[str, str]) -> str:
    """Return the real name of a file that is called by a hash, else its own name.

    A 32-digit hash is looked for with the file's suffix and without.
    """
    real = mapping.get(name)
    if real is not None:
        return real
    match = _HASH_STEM.fullmatch(name)
    if match is None:
        return name
    stem, suffix = match.groups()
    real = mapping.get(stem)
    if real is None:
        return name
    return real if real.endswith(suffix) else real + suffix


def _parse_rare(name: str) -> DumpName | None:
    """Parse what has no task, stream and time in the usual order."""
    match = _EXCEPTION_INFO.fullmatch(name)
    if match is not None:
        kind, stream, task, time = match.groups()
        return DumpName(kind, kind, _known(task), _known(stream), int(time))
    kernel = _parse_kernel(name)
    if kernel is not None:
        return kernel
    match = _NAME_WITHOUT_STREAM.fullmatch(name)
    if match is not None and not (match[11] == "npy" and match[8] is None):
        op_type, op_name, task, time, context, thread, device, *tail = match.groups()
        return _finish(op_type, op_name, task, None, time, context, thread, device, tail)
    match = _GOLDEN.fullmatch(name)
    if match is not None:
        op_name, slot, time = match.groups()
        return DumpName(
            "", op_name, timestamp=int(time), role="output", slot=int(slot), suffix="npy"
        )
    return None


def _parse_kernel(name: str) -> DumpName | None:
    """Parse an exception dump that is named after a kernel, not an operator."""
    match = _KERNEL.fullmatch(name)
    if match is None:
        return None
    kernel, stream, task, _core, time = match.groups()
    return DumpName(kernel, kernel, _known(task), _known(stream), int(time))


def _finish(
    op_type: str,
    op_name: str,
    task: str,
    stream: str | None,
    time: str,
    context: str | None,
    thread: str | None,
    device: str | None,
    tail: list[str | None],
) -> DumpName:
    """Build the name with its rarer fields."""
    kind, slot, middle, suffix = tail
    role = _ROLES.get(kind or "")
    layout, dtype, shape = _describe_tensor(middle or "")
    return DumpName(
        op_type=op_type,
        op_name=op_name,
        task_id=_known(task),
        stream_id=_known(stream),
        timestamp=int(time),
        context_id=_number(context),
        thread_id=_number(thread),
        device_id=_number(device),
        role=role,
        slot=_number(slot),
        layout=layout,
        dtype=dtype,
        shape=shape,
        suffix=f"{kind}.{suffix}" if kind and role is None else suffix or "",
    )


def _describe_tensor(middle: str) -> tuple[str | None, str | None, tuple[int, ...] | None]:
    """Tell layout, dtype and shape apart in what stands between the slot and the suffix.

    Their order differs between the tools, their forms do not: a shape is of digits joined by `x`
    or `_`, a dtype is a known word, and what remains is the layout.
    """
    layout: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    for part in middle.split(".")[1:]:
        if shape is None and _SHAPE.fullmatch(part):
            shape = tuple(int(n) for n in part.replace("x", "_").split("_") if n)
        elif dtype is None and _DTYPE.fullmatch(part):
            dtype = part
        elif layout is None and part:
            layout = part
    return layout, dtype, shape


def _known(digits: str | None) -> int | None:
    """Read a task or stream id; the writers' number for "unknown" becomes `None`."""
    if digits is None:
        return None
    number = int(digits)
    return None if number in _UNKNOWN_IDS else number


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def _date_ns(date: int, milliseconds: int) -> int | None:
    """Convert YYYYMMDDhhmmss."""
    rest, second = divmod(date, 100)
    rest, minute = divmod(rest, 100)
    rest, hour = divmod(rest, 100)
    rest, day = divmod(rest, 100)
    year, month = divmod(rest, 100)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    return timegm(moment.timetuple()) * 1_000_000_000 + milliseconds * 1_000_000
