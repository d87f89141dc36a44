"""Fields of protobuf text and of JSON as one stream of events, in bounded memory.

Both are nested fields with a name, so one tolerant tokenizer serves both::

    op { name: "conv1" input: "data:0" }          {"op": [{"name": "conv1", "input": ["data:0"]}]}

A block opens, holds values, and closes. What does not follow the grammar is passed over. Graph
texts are many megabytes, nine tenths of them attributes that nobody asks for: a block laid out
the way protobuf prints it is skipped with one search for its closing brace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from dumpscope.errors import CorruptDumpError, TruncatedDumpError
from dumpscope.regexes import regex
from dumpscope.source import DumpSource

__all__ = ["FieldEvent", "stream_fields", "unescape"]

MAX_STRING_BYTES = 1 << 20
"""A longer string is a weight, not a name: its content is dropped."""

MAX_DEPTH = 256

_TOKEN = regex(
    rb"""[\s,;]*
    (?: "([^"\\]*(?:\\.[^"\\]*)*)" (\s*:)?
      | ([^\s{}\[\],;:"'\#]+) (\s*:)?
      | ([{}\[\]])
      | '([^'\\]*(?:\\.[^'\\]*)*)'
      | (\#[^\n]*\n | [^"'\#])
    )""",
    re.DOTALL | re.VERBOSE,
)
# The groups of a token, by the last one that took part in it.
_STRING, _STRING_KEY, _WORD, _WORD_KEY, _MARK, _SINGLE, _PASSED = range(1, 8)
_REST = {
    b'"': regex(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL),
    b"'": regex(rb"[^'\\]*(?:\\.[^'\\]*)*", re.DOTALL),
}
_FIRST_NAME = regex(rb'\n *(?:key|name): "([^"\\\n]{0,256})"\n *(g \{|graphs \{)?')
_BLANKS = regex(rb"[\s,;]*")
_MAX_BLANKS = 64
_ESCAPE = regex(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f", b"a": b"\a"}


class FieldEvent(NamedTuple):
    """One field or brace.

    `kind` says whether a block `key` opened, closed, or a field `key` had a value.
    """

    kind: Literal["open", "close", "value"]
    key: bytes
    text: bytes = b""


class _Buffer:
    """The part of the file that is looked at, and where it lies.

    A token that ends behind `nearly` may go on in the next block: it is looked at again with it.
    """

    __slots__ = ("_blocks", "at", "base", "content", "last", "nearly")

    def __init__(self, source: DumpSource) -> None:
        self._blocks = source.blocks(0, source.size)
        self.content = b""
        self.base = 0
        self.at = 0
        self.last = False
        self.nearly = -1

    def refill(self) -> None:
        """Drop what was used and append one block."""
        self.base += self.at
        rest = self.content[self.at :]
        self.at = 0
        block = next(self._blocks, None)
        if block is None:
            self.last = True
            self.content = rest + b"\n"
        else:
            self.content = rest + bytes(block)
        self.nearly = len(self.content) - 64

    def next_token(self) -> re.Match[bytes] | None:
        """Return the next token and move behind it, `None` at the end of the file."""
        while True:
            match = _TOKEN.match(self.content, self.at)
            if match is not None:
                end = match.end()
                if end <= self.nearly or self.last:
                    self.at = end
                    return match
            elif self.last:
                return None
            elif len(self.content) - self.at > MAX_STRING_BYTES:
                _drop_string(self)
                continue
            self.refill()


class _Skipper:
    """Passes over blocks that protobuf printed and nobody wants.

    Protobuf prints one field a line, two blanks deeper than the block that holds it, and line
    ends inside strings are escaped: a block ends at the first brace as deep as its first line.
    """

    def __init__(self, named: frozenset[bytes], wanted: bytes, skipped: frozenset[bytes]) -> None:
        self._named = named
        self._wanted = wanted
        self._skipped = skipped
        self._runs: dict[int, re.Pattern[bytes]] = {}

    def skip(self, buffer: _Buffer, start: int, key: bytes) -> bool:
        """Pass over the block `key` whose brace is at `start`, and like ones right behind it."""
        if key not in self._skipped and key not in self._named:
            return False
        content = buffer.content
        line = content.rfind(b"\n", max(0, start - _MAX_BLANKS - len(key) - 2), start) + 1
        blanks = start - line - len(key) - 1
        if line == 0 or blanks < 0 or content[line:start] != b" " * blanks + key + b" ":
            return False
        match = self._run(blanks).match(content, line - 1)
        if match is not None:
            buffer.at = match.end()
            return True
        while len(buffer.content) - buffer.at < 1024 and not buffer.last:
            buffer.refill()
        if not buffer.content.startswith(b"\n" + b" " * (blanks + 2), buffer.at):
            return False
        if key in self._named:
            name = _FIRST_NAME.match(buffer.content, buffer.at)
            if name is None or name[1] == self._wanted or name[2]:
                return False
        return _find_closing(buffer, b"\n" + b" " * blanks + b"}")

    def _run(self, blanks: int) -> re.Pattern[bytes]:
        """Match whole blocks in a row, the first lines of which are so deep."""
        run = self._runs.get(blanks)
        if run is None:
            first, inner = b" " * blanks, b" " * (blanks + 2)
            named = b"|".join(map(re.escape, self._named))
            skipped = b"|".join(map(re.escape, self._skipped))
            run = self._runs[blanks] = re.compile(
                rb"(?:\n" + first + rb"(?:(?:" + named + rb") \{\n" + inner
                + rb'(?:key|name): "(?!' + re.escape(self._wanted) + rb'")[^"\\\n]*"\n'
                + rb"(?!" + inner + rb"(?:g|graphs) \{)|(?:" + skipped + rb") \{\n)(?:" + inner
                + rb"[^\n]*\n)*" + first + rb"\}(?=\n))+"
            )  # fmt: skip
        return run


def _find_closing(buffer: _Buffer, closing: bytes) -> bool:
    """Move behind the line that closes a block."""
    while True:
        found = buffer.content.find(closing, buffer.at)
        if found >= 0:
            buffer.at = found + len(closing)
            return True
        if buffer.last:
            # Cut off inside the block: what follows is read as it is, to its end.
            return False
        buffer.at = max(buffer.at, len(buffer.content) - len(closing))
        buffer.refill()


def stream_fields(
    source: DumpSource, *, named: frozenset[bytes], wanted: bytes, skipped: frozenset[bytes]
) -> Iterator[FieldEvent]:
    """Yield the fields of a protobuf text or JSON file.

    Parameters
    ----------
    source
        The file.
    named, wanted
        Blocks called one of `named` whose first field is a `key` or `name` are passed over
        unless that is `wanted` or a graph follows (where the layout allows to do so cheaply).
    skipped
        Blocks that are passed over where the layout allows it.

    Raises
    ------
    CorruptDumpError
        Blocks are nested deeper than any graph.
    TruncatedDumpError
        The file ends inside a block.
    """
    buffer = _Buffer(source)
    nesting = _Nesting(source, _Skipper(named, wanted, skipped))
    key: bytes | None = None
    while True:
        match = buffer.next_token()
        if match is None:
            break
        group = match.lastindex
        if group in (_STRING_KEY, _WORD_KEY):
            key = match[(group or 1) - 1]
        elif group == _MARK:
            event = nesting.take(match[_MARK], key, buffer)
            key = None
            if event is not None:
                yield event
        elif group != _PASSED:
            text = match[group or 0]
            if key is not None:
                yield FieldEvent("value", key, text)
                key = None
            elif nesting.in_list:
                yield FieldEvent("value", nesting.inherited, text)
            elif group == _WORD:
                key = text
    if nesting.stack:
        raise TruncatedDumpError(
            f"expected {len(nesting.stack)} more closing braces, found the end of the file: "
            "the graph is cut off, what was complete is used",
            path=source.file.relative,
            offset=source.size,
        )


class _Nesting:
    """The blocks and lists that are open.

    Attributes
    ----------
    stack
        The mark that opened each, and its name.
    in_list, inherited
        Whether the innermost is a list, and its name then: its items are called the same.
    """

    __slots__ = ("_skipper", "_source", "in_list", "inherited", "stack")

    def __init__(self, source: DumpSource, skipper: _Skipper) -> None:
        self._source = source
        self._skipper = skipper
        self.stack: list[tuple[bytes, bytes]] = []
        self.in_list = False
        self.inherited = b""

    def take(self, mark: bytes, key: bytes | None, buffer: _Buffer) -> FieldEvent | None:
        """Open or close a block or a list."""
        event = None
        stack = self.stack
        name = self.inherited if key is None else key
        if mark == b"{":
            if self._skipper.skip(buffer, buffer.at - 1, name):
                return None
            self._push(mark, name, buffer)
            event = FieldEvent("open", name)
        elif mark == b"[":
            self._push(mark, name, buffer)
        elif mark == b"]":
            if self.in_list:
                stack.pop()
        else:
            while stack and stack[-1][0] == b"[":
                stack.pop()
            if stack:
                event = FieldEvent("close", stack.pop()[1])
        self.in_list = bool(stack) and stack[-1][0] == b"["
        self.inherited = stack[-1][1] if self.in_list else b""
        return event

    def _push(self, mark: bytes, name: bytes, buffer: _Buffer) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise CorruptDumpError(
                f"expected at most {MAX_DEPTH} nested blocks, found more: this is no graph text",
                path=self._source.file.relative,
                offset=buffer.base + buffer.at - 1,
            )
        self.stack.append((mark, name))


def unescape(text: bytes) -> str:
    """Undo the escapes of a quoted string."""
    if b"\\" in text:
        text = _ESCAPE.sub(_replace_escape, text)
    return text.decode("utf-8", "surrogateescape")


def _replace_escape(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, code, letter = match.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if code:
        return chr(int(code, 16)).encode("utf-8", "surrogatepass")
    return _LETTERS.get(letter, letter)


def _drop_string(buffer: _Buffer) -> None:
    """Put an empty string in the place of one that is too long to be kept; pass over comments."""
    blanks = _BLANKS.match(buffer.content, buffer.at)
    buffer.at = buffer.at if blanks is None else blanks.end()
    quote = buffer.content[buffer.at : buffer.at + 1]
    buffer.at += len(quote)
    if not quote:
        return
    rest = _REST.get(quote)
    if rest is None:  # a comment
        while (end := buffer.content.find(b"\n", buffer.at)) < 0 and not buffer.last:
            buffer.at = len(buffer.content)
            buffer.refill()
        buffer.at = end if end >= 0 else len(buffer.content)
        return
    while True:
        match = rest.match(buffer.content, buffer.at)
        end = len(buffer.content) if match is None else match.end()
        if end < len(buffer.content) and buffer.content[end : end + 1] == quote:
            buffer.base += end - 1
            buffer.content = quote + buffer.content[end:]
            buffer.at = 0
            return
        buffer.at = end
        if buffer.last:
            buffer.at = len(buffer.content)
            return
        buffer.refill()
