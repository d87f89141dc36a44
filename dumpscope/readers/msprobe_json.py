"""Members of a large JSON object, one after the other.

`dump.json` is one object whose member `data` holds an entry for every operator: hundreds of
megabytes where the dump is long, and cut off anywhere where the job died. Entries are parsed one
by one, so memory holds one block of the file or the largest entry, and what stands before the
cut is read. NaN, Infinity and -Infinity are numbers, as in everything that Python writes.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import NamedTuple

from dumpscope.errors import CorruptDumpError, DumpReadError, TruncatedDumpError
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["JsonMember", "load_json", "read_members"]

_BLOCK_BYTES = 1 << 20
_LARGEST_VALUE_CHARS = 16 << 20
_LARGEST_FILE_BYTES = 128 << 20
_LONGEST_INTEGER = 40
_NEAR_END = 16
"""A fault this near to the end of the text may be due to the end."""

_BLANK = regex(r"[ \t\r\n]*")
_DELIMITERS = frozenset(" \t\r\n,]}")


class JsonMember(NamedTuple):
    """One member. `section` is "" for the object's own ones, else the name of the inner object."""

    section: str
    key: str
    value: object
    offset: int
    length: int


def read_members(source: DumpSource, section: str) -> Iterator[JsonMember]:
    """Yield the members of the object in a file, and those of its member `section`.

    Yields
    ------
    JsonMember
        In the order of the file, the section itself as an empty one. `offset` and `length` are
        those of the bytes of the value.

    Raises
    ------
    TruncatedDumpError
        The text ends before the object does; everything complete was yielded.
    CorruptDumpError
        The text is no JSON object of this kind.
    """
    text = _Text(source)
    if text.next_char() == "\ufeff":
        text.step()
    text.expect("{")
    for key in _keys(text):
        if key == section and text.next_char() == "{":
            yield JsonMember("", key, {}, text.byte, 0)
            text.step()
            for inner in _keys(text):
                yield text.member(section, inner)
        else:
            yield text.member("", key)
    rest = text.next_char(at_end=True)
    if rest:
        raise text.corrupt(f"expected the end of the file behind the object, found {rest!a}")


def load_json(source: DumpSource) -> object:
    """Parse the whole of a file that describes others.

    Raises
    ------
    DumpReadError
        It is no JSON, or larger than any such file.
    """
    if source.size > _LARGEST_FILE_BYTES:
        raise CorruptDumpError(
            f"expected at most {_LARGEST_FILE_BYTES} bytes, found {source.size}: it is not read",
            path=source.file.relative,
        )
    content = source.read(0, source.size).decode("utf-8", "surrogateescape")
    try:
        return _DECODER.decode(content.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise CorruptDumpError(
            f"is no valid JSON: {_reason(error)}", path=source.file.relative
        ) from None


def parse_value(content: bytes) -> object:
    """Parse bytes that were a value of `read_members`."""
    return _DECODER.decode(content.decode("utf-8", "surrogateescape"))


def _keys(text: _Text) -> Iterator[str]:
    """Yield the keys of an object whose `{` was read, each when its value is next."""
    if text.next_char() == "}":
        text.step()
        return
    while True:
        if text.next_char() != '"':
            raise text.corrupt(f"expected a key in quotes, found {text.next_char()!a}")
        key = text.value()
        text.expect(":")
        assert isinstance(key, str), "a quote starts a string"
        yield key
        mark = text.next_char()
        text.step()
        if mark == "}":
            return
        if mark != ",":
            raise text.corrupt(f"expected ',' or '}}' behind a value, found {mark!a}")
        text.next_char()


class _Text:
    """The text of a file, with the part that was used up dropped."""

    def __init__(self, source: DumpSource) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text = ""
        self._position = 0
        self._read_to = 0
        self.byte = 0
        """Offset in the file of what comes next."""

    def member(self, section: str, key: str) -> JsonMember:
        self.next_char()
        start = self.byte
        value = self.value()
        return JsonMember(section, key, value, start, self.byte - start)

    def next_char(self, *, at_end: bool = False) -> str:
        """Return the next character that is no blank, without passing it."""
        while True:
            match = _BLANK.match(self._text, self._position)
            assert match is not None
            self._move(match.end())
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._grow():
                if at_end:
                    return ""
                raise self.truncated()

    def step(self) -> None:
        """Pass one character."""
        self._move(self._position + 1)

    def expect(self, mark: str) -> None:
        found = self.next_char()
        if found != mark:
            raise self.corrupt(f"expected {mark!a}, found {found!a}")
        self.step()

    def value(self) -> object:
        """Parse the value that comes next, reading as much of the file as it takes."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                fault: DumpReadError = self._judge(error)
            except (ValueError, RecursionError) as error:
                raise self.corrupt(_reason(error)) from None
            else:
                # A number may go on in the next block: `1` is also the start of `1.5`.
                ended = self._text[end : end + 1] in _DELIMITERS
                if ended or not isinstance(value, (int, float)) or not self._grow():
                    self._move(end)
                    return value
                continue
            if isinstance(fault, CorruptDumpError) or not self._grow():
                raise fault
            if len(self._text) > _LARGEST_VALUE_CHARS + _BLOCK_BYTES:
                raise self.corrupt(
                    f"an entry is longer than {_LARGEST_VALUE_CHARS} characters, which no "
                    "operator's is"
                )

    def corrupt(self, message: str, offset: int | None = None) -> CorruptDumpError:
        return CorruptDumpError(
            f"is no valid JSON: {message}",
            path=self._source.file.relative,
            offset=self.byte if offset is None else offset,
        )

    def truncated(self) -> TruncatedDumpError:
        return TruncatedDumpError(
            "the JSON text ends in the middle: the job died while it was written, or the copy is "
            "not complete; the entries before were read",
            path=self._source.file.relative,
            offset=self._source.size,
        )

    def _judge(self, error: json.JSONDecodeError) -> DumpReadError:
        """Tell a text that goes on from one that is wrong."""
        rest = self._text[error.pos : error.pos + _NEAR_END + 1]
        if error.msg.startswith("Unterminated string") or len(rest) <= _NEAR_END:
            return self.truncated()
        if not rest.strip(" \t\r\n\0"):
            return self.truncated()
        where = self.byte + _bytes_of(self._text[self._position : error.pos])
        return self.corrupt(f"{error.msg}, found {rest[:_NEAR_END]!a}", where)

    def _grow(self) -> bool:
        """Read another block; twice as much whenever a value did not fit."""
        left = self._source.size - self._read_to
        if left <= 0:
            return False
        count = min(left, max(_BLOCK_BYTES, len(self._text) - self._position))
        block = self._source.read(self._read_to, count)
        self._read_to += count
        more = self._decoder.decode(block, final=count == left)
        self._text = self._text[self._position :] + more
        self._position = 0
        return True

    def _move(self, end: int) -> None:
        if self._text.isascii():
            self.byte += end - self._position
        else:
            self.byte += _bytes_of(self._text[self._position : end])
        self._position = end


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def _reason(error: Exception) -> str:
    return "it nests too deeply" if isinstance(error, RecursionError) else str(error)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in made if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:80]!a} stands twice in one object")
    return made


def _bounded_integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise ValueError(f"an integer has {len(text)} digits")
    return int(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_bounded_integer, strict=False)
