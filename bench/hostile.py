"""Trees as an enemy would make them: names, links, pipes, damaged and endless files, by seed.

Everything is made from a few true dumps, so that damage lands behind headers that are believed.
"""

from __future__ import annotations

import errno
import io
import os
import random
import socket
import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dumpscope.testing.damage import damage

__all__ = ["WORDS", "make_hostile_tree", "snapshot"]

_TIME = "1767225600000001"

WORDS: tuple[bytes, ...] = (
    b"\x1b[31mred\x1b]0;title\x07",
    b"two\nlines",
    b"carriage\rreturn",
    b"=cmd|' /C calc'!A0",
    b"@SUM(1+1)*cmd",
    b"<script>alert(1)</script>",
    b"</td><img src=x onerror=alert(1)>",
    b"\xff\xfe\x80 no utf-8",
    "\u202egpj.exe\u2066".encode(),
    "\u00a0\u200b\ufeff".encode(),
    "算子".encode(),
    b"%s%n{0}{x!r}",
    b"';DROP TABLE scans;--",
    b"[bold red]markup[_bold red]",
    b"\\..\\..\\windows",
    b"..",
    b"-rf",
    b"\x7f\x08\x08",
    b"\xc2\x9b31m",
    b"_x0041_",
    b"a" * 200,
)

_NUMBERS = (b"0", b"-1", b"9" * 19, b"9" * 40, b"18446744073709551616", b"1e9", b"0x10", b"")

_MAPPINGS = (
    b"1767225600000001,../../../../etc/passwd\n",
    b"hash,Add.\x1b[2J.1.1.1767225600000001\n" * 3,
    b"\xff\xfe,\x00\n,,,,\n",
    b'"unclosed,\n' + b"9" * 100_000,
)


def make_hostile_tree(target: Path, dumps: Sequence[Path], seed: int, count: int = 24) -> None:
    """Fill a new folder with `count` entries made from `dumps`."""
    chance = random.Random(seed)
    target.mkdir(parents=True)
    folders = [os.fsencode(target)]
    for _ in range(count):
        make = chance.choices(_MAKERS, _WEIGHTS)[0]
        source = chance.choice(dumps)
        folder = chance.choice(folders)
        if chance.random() < 0.25:
            folder = _make_folder(folder, chance)
            folders.append(folder)
        try:
            make(folder, source, chance)
        except FileExistsError:
            pass
        except OSError as error:
            # The file system refuses longer names and paths than it knows.
            if error.errno not in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
                raise


def _make_folder(folder: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(5)
    if kind == 0:
        parts = [b"20260101000000", b"0", chance.choice(WORDS)[:60], b"1", b"0"]
    elif kind == 1:
        parts = [b"d"] * chance.randint(64, 90)
    elif kind == 2:
        parts = [b"rank_" + chance.choice(_NUMBERS), b"step_" + chance.choice(_NUMBERS)]
    elif kind == 3:
        parts = [chance.choice(_NUMBERS) or b"x" for _ in range(4)]
    else:
        parts = [chance.choice(WORDS)]
    parts = [b"dots" if part == b".." else part.replace(b"/", b":") for part in parts]
    place = os.path.join(folder, *parts)
    if len(place) > 3000:
        return folder
    try:
        os.makedirs(place, exist_ok=True)
    except (FileExistsError, NotADirectoryError):  # a file has that name already
        return folder
    return place


def _hostile_name(name: bytes, chance: random.Random) -> bytes:
    parts = name.split(b".")
    for _ in range(chance.randint(1, 2)):
        at = chance.randrange(len(parts))
        word = chance.choice(_NUMBERS if parts[at].isdigit() else WORDS)
        parts[at] = word if chance.random() < 0.7 else parts[at] + word
    made = b".".join(parts).replace(b"/", b":")
    if chance.random() < 0.1:
        made = (made + b"n" * 255)[:255]
    return made[:255] if made.strip(b".") else b"nothing"


def _put(folder: bytes, name: bytes, content: bytes) -> None:
    with open(os.path.join(folder, name), "xb") as file:
        file.write(content)


def _put_plain(folder: bytes, source: Path, _: random.Random) -> None:
    _put(folder, os.fsencode(source.name), source.read_bytes())


def _put_renamed(folder: bytes, source: Path, chance: random.Random) -> None:
    _put(folder, _hostile_name(os.fsencode(source.name), chance), source.read_bytes())


def _put_damaged(folder: bytes, source: Path, chance: random.Random) -> None:
    name = os.fsencode(source.name)
    if chance.random() < 0.5:
        name = _hostile_name(name, chance)
    _put(folder, name, damage(source.read_bytes(), chance, WORDS))


def _put_empty(folder: bytes, source: Path, _: random.Random) -> None:
    _put(folder, os.fsencode(source.name), b"")


def _put_sparse(folder: bytes, source: Path, chance: random.Random) -> None:
    """A true beginning, then nothing but a hole."""
    path = os.path.join(folder, b"Add.hole.1.1." + _TIME.encode())
    with open(path, "xb") as file:
        file.write(source.read_bytes()[:200])
        file.truncate(chance.choice((1 << 16, 1 << 20, 8 << 20)))


def _put_pipe(folder: bytes, source: Path, _: random.Random) -> None:
    os.mkfifo(os.path.join(folder, os.fsencode(source.name)))


def _put_socket(folder: bytes, _: Path, chance: random.Random) -> None:
    path = os.path.join(folder, b"s%d" % chance.randrange(1000))
    if len(path) > 100:
        return
    with socket.socket(socket.AF_UNIX) as made:
        try:
            made.bind(path)
        except OSError as error:
            raise FileExistsError from error


def _put_link(folder: bytes, source: Path, chance: random.Random) -> None:
    aim = chance.choice((b"/etc/passwd", b"nowhere", b".", b"..", b"/dev/zero", b"/proc/self/mem"))
    os.symlink(aim, os.path.join(folder, _hostile_name(os.fsencode(source.name), chance)))


def _put_mapping(folder: bytes, _: Path, chance: random.Random) -> None:
    _put(folder, b"mapping.csv", chance.choice(_MAPPINGS))


def _put_bomb(folder: bytes, _: Path, chance: random.Random) -> None:
    """A few KiB that unpack to 64 MiB, as npz and as a torch archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        zeros = bytes(1 << 20)
        name = chance.choice(("x.npy", "archive/data.pkl", "archive/data/0", "../../up.npy"))
        with archive.open(name, "w") as member:
            if name.endswith("npy"):
                header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (16777184,), }"
                header += b" " * (117 - len(header)) + b"\n"
                member.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
            for _mebibyte in range(64):
                member.write(zeros)
    ending = chance.choice((b".npz", b".pt"))
    _put(folder, b"Add.bomb.1.1." + _TIME.encode() + ending, packed.getvalue())


def _put_json(folder: bytes, _: Path, chance: random.Random) -> None:
    name = chance.choice((b"dump.json", b"construct.json", b"stack.json", b"debug.json"))
    content = chance.choice(
        (b"[" * 100_000, b'{"a":' * 50_000, b'{"data": NaN}', b'{"task":"statistics","data":[]}',
         b'{"data": {"Tensor.\x1b[2J.0.forward": {"input_args": [{"Max": 1e999999, "shape": [-1]}]'
         b"}}}", b'{"data":' + b"9" * 10_000 + b"}", b"\xff\xfe")
    )  # fmt: skip
    _put(folder, name, content)


_Maker = Callable[[bytes, Path, random.Random], None]
_MAKERS: tuple[_Maker, ...] = (
    _put_plain, _put_renamed, _put_damaged, _put_empty, _put_sparse, _put_pipe, _put_socket,
    _put_link, _put_mapping, _put_bomb, _put_json,
)  # fmt: skip
_WEIGHTS = (4, 8, 12, 1, 1, 1, 1, 2, 1, 0.4, 1)


def snapshot(folder: Path) -> dict[bytes, tuple[int, int, int, bytes]]:
    """Kind and mode, size, time and bytes (of files) or aim (of links) of all below a folder."""
    found: dict[bytes, tuple[int, int, int, bytes]] = {}
    waiting = [os.fsencode(folder)]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            status = entry.stat(follow_symlinks=False)
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(entry.path)
            elif stat.S_ISREG(status.st_mode):
                with open(entry.path, "rb") as file:
                    content = file.read()
            elif stat.S_ISDIR(status.st_mode):
                waiting.append(entry.path)
            found[entry.path] = (status.st_mode, status.st_size, status.st_mtime_ns, content)
    return found
