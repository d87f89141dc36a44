"""Ways in which files are damaged: cut off, with impossible numbers in them, with wrong bytes.

Everything is the same on every run and every machine.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

__all__ = ["cut_positions", "damage", "giant_numbers", "hostile_names", "mutated", "strange_heads"]

_SEED = 20_251_129

_GIANTS = (
    (1 << 31).to_bytes(4, "little"),
    (1 << 63).to_bytes(8, "little"),
    b"\xff" * 8,
    b"\xff\xff\xff\xff\x07",  # 2**31 - 1 as a varint
    b"\x80" * 9 + b"\x01",  # 2**63
)
_GIANT_DIGITS = (b"2147483648", b"9223372036854775808")
_DIGITS = re.compile(rb"[0-9]+")


def cut_positions(size: int, head_bytes: int, samples: int) -> list[int]:
    """Return where to cut a file: at every byte of its head, and at some of the rest."""
    head = range(min(size, head_bytes))
    rest = range(head_bytes, size)
    chosen = _chance().sample(rest, min(samples, len(rest))) if rest else []
    return [*head, *sorted(chosen)]


def giant_numbers(content: bytes, head_bytes: int, samples: int) -> Iterator[tuple[int, bytes]]:
    """Yield (position, file) with a number of 2**31 or 2**63 written over what is there.

    Binary ones go to every byte of the head and some of the rest; of the numbers in text some are
    replaced, wherever they are.
    """
    chance = _chance()
    positions = cut_positions(len(content), head_bytes, samples)
    for at in positions:
        giant = _GIANTS[at % len(_GIANTS)]
        yield at, content[:at] + giant + content[at + len(giant) :]
    numbers = list(_DIGITS.finditer(content))
    for match in chance.sample(numbers, min(len(numbers), 4 * samples)):
        for digits in _GIANT_DIGITS:
            yield match.start(), content[: match.start()] + digits + content[match.end() :]


def mutated(content: bytes, seed: int) -> bytes:
    """Return the file with some bytes changed, cut out, repeated, put in or cut off."""
    return damage(content, _chance(seed), _GIANTS)


def damage(content: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    """Change, cut out, repeat or cut off a few bytes, or put in one of the words.

    Half of it happens to the first 256 bytes.
    """
    raw = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        if not raw:
            break
        at = chance.randrange(len(raw) if chance.random() < 0.5 else min(len(raw), 256))
        kind = chance.randrange(6)
        if kind == 0:
            raw[at] = chance.randrange(256)
        elif kind == 1:
            raw[at : at + 8] = chance.choice((b"\xff" * 8, b"\0" * 8, b"\x7f" * 8))
        elif kind == 2:
            del raw[at : at + chance.randint(1, 9)]
        elif kind == 3:
            raw[at:at] = raw[at : at + chance.randint(1, 64)]
        elif kind == 4:
            raw[at:at] = chance.choice(words)
        else:
            del raw[at:]
    return bytes(raw)


def strange_heads(count: int) -> Iterator[bytes]:
    """Yield beginnings of files that are nothing in particular."""
    chance = _chance()
    yield from (b"", b"\0", b"\n", b"{", b"[", b"PK\x03\x04", b"\x93NUMPY", b"\xef\xbb\xbf")
    yield from (b"\0" * 4096, b"\xff" * 4096, b'{"a":' * 800, b"a," * 2048)
    for _ in range(count):
        yield chance.randbytes(chance.randrange(4096))


def _chance(seed: int = 0) -> random.Random:
    return random.Random(_SEED + seed)  # noqa: S311 - the same numbers every time is the point


def hostile_names(name: str) -> Iterator[str]:
    """Yield names that a file of the format might have but should not."""
    suffix = name[name.rfind(".") :] if "." in name else ""
    for stem in ("", "..", "a" * 250, "\udcff\udc80", "new\nline", "\x1b[2J", "9" * 250, "层"):
        yield stem + suffix
    yield name.replace("0", "9" * 40)
    yield name + "\u202e"
