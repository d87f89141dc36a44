"""`python -m bench.soak`: hours of bad luck, by seed, in temporary folders only.

Each part plays one kind of misfortune and counts what did not end as promised: a correct result,
or one sentence and exit status 2 or 3. The test suite runs a few rounds of each. Linux only: every
command runs in a forked copy of this process, which has imported all that takes time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from bench.hostile import WORDS, make_hostile_tree, snapshot
from dumpscope.cli.main import run_with
from dumpscope.store import Store
from dumpscope.testing.damage import damage

__all__ = ["PARTS", "Outcome", "find_faults", "main", "run_forked"]

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "fixtures" / "sample_dump"
LONGEST_S = 120
MOST_MEMORY_BYTES = 3 << 30
LARGEST_DUMP_BYTES = 200_000
SCAN = ("scan", "--jobs", "1", "--no-progress")
REPORTS = ("csv", "json", "xlsx", "html", "junit", "sarif")


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit status (negative: the signal), and what it printed."""

    status: int
    out: bytes
    err: bytes


def run_forked(
    arguments: Sequence[str],
    folder: Path,
    *,
    largest_file: int | None = None,
    kill_after_s: float | None = None,
) -> Outcome:
    """Run a command in a copy of this process, in `folder`, with a limit or a sudden end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _be_the_command(arguments, folder, out.fileno(), err.fileno(), largest_file)
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0)
        err.seek(0)
        return Outcome(status, out.read(), err.read())


def _be_the_command(
    arguments: Sequence[str], folder: Path, out: int, err: int, largest_file: int | None
) -> None:
    """Never returns: the copy must not go on with what this process is doing."""
    status = 99
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        signal.alarm(LONGEST_S)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
        if largest_file is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
        status = run_with(arguments)
    except BaseException:  # noqa: BLE001 - whatever it is, it goes into the outcome
        traceback.print_exc()
    finally:
        os._exit(status)


def find_faults(what: str, outcome: Outcome, allowed: Sequence[int]) -> list[str]:
    """What is wrong with how a command ended, whatever it was asked for."""
    faults = []
    if outcome.status not in allowed:
        faults.append(f"{what}: exit status {outcome.status}: {outcome.err[-300:]!r}")
    if b"Traceback" in outcome.err or b"bug in dumpscope" in outcome.err:
        faults.append(f"{what}: {outcome.err[-1500:].decode(errors='replace')}")
    for name, content in (("stdout", outcome.out), ("stderr", outcome.err)):
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            faults.append(f"{what}: {name} is no UTF-8: {error}")
            continue
        acting = {c for c in text if c != "\n" and not c.isprintable() and not c.isspace()}
        acting |= set(text) & set("\r\t\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029")
        if acting:
            faults.append(f"{what}: {name} holds {sorted(acting)!r}")
    usage = outcome.err.startswith(b"Usage: ")
    if outcome.status == 2 and not usage and len(outcome.err.splitlines()) != 1:
        faults.append(f"{what}: expected one sentence, found {outcome.err[-600:]!r}")
    return faults


def list_faults_of_json(content: bytes) -> list[str]:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        json.loads(content, parse_constant=refuse)
    except ValueError as error:
        return [f"document: {error}"]
    return []


def list_faults_of_workbook(path: Path) -> list[str]:
    """No sheet may hold a formula, whatever the operators are called."""
    try:
        with zipfile.ZipFile(path) as book:
            sheets = [n for n in book.namelist() if n.startswith("xl/worksheets/sheet")]
            cells = [ET.fromstring(book.read(name)) for name in sheets]  # noqa: S314 - we wrote it
    except (zipfile.BadZipFile, ET.ParseError) as error:
        return [f"workbook: {error}"]
    return [
        "workbook: a formula" for sheet in cells if any(e.tag.endswith("}f") for e in sheet.iter())
    ]


@contextmanager
def new_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dumpscope-soak-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def reference(folder: Path) -> bytes:
    """The report of an undisturbed scan."""
    assert run_forked([*SCAN, str(SAMPLE)], folder).status == 1
    return run_forked(["report", "--csv=-", "--limit", "0"], folder).out


def committed_files(store_file: Path) -> int:
    """How many files the newest scan has in the store."""
    if not store_file.exists():
        return 0
    with Store.open(store_file) as store:
        newest = store.latest()
        return 0 if newest is None else newest.files


def kill(rounds: int, seed: int) -> Iterator[list[str]]:
    """SIGKILL at random moments of a scan; what follows must equal an undisturbed one."""
    chance = random.Random(seed)
    with new_folder() as folder:
        expected = reference(folder)
    with new_folder() as folder:
        started = time.monotonic()
        run_forked([*SCAN, str(SAMPLE)], folder)
        usual_s = time.monotonic() - started
    for number in range(rounds):
        with new_folder() as folder:
            ended = run_forked(
                [*SCAN, str(SAMPLE)], folder, kill_after_s=chance.uniform(0, usual_s)
            )
            faults = []
            resumed = run_forked([*SCAN, "--resume"], folder)
            if resumed.status == 2:  # killed before there was a scan in the store, or after its end
                faults += find_faults(f"resume {number}", resumed, (2,))
                resumed = run_forked([*SCAN, str(SAMPLE)], folder)
            faults += find_faults(f"scan {number} after {ended.status}", resumed, (1,))
            report = run_forked(["report", "--csv=-", "--limit", "0"], folder)
            if report.out != expected:
                faults.append(f"round {number}: another result than undisturbed")
            yield faults


def disk(rounds: int, seed: int) -> Iterator[list[str]]:
    """A disk that is full at a random byte of the store, and of each report."""
    chance = random.Random(seed)
    with new_folder() as folder:
        expected = reference(folder)
        size = (folder / ".dumpscope/scans.db").stat().st_size
        for number in range(rounds):
            with new_folder() as other:
                yield full_store(other, chance.randrange(size + size // 4), expected, number)
            kind = REPORTS[number % len(REPORTS)]
            yield full_report(folder, kind, chance.randrange(700), chance.random() < 0.5)


def full_store(folder: Path, room: int, expected: bytes, number: int) -> list[str]:
    ended = run_forked([*SCAN, str(SAMPLE)], folder, largest_file=room)
    faults = find_faults(f"scan {number} with room for {room}", ended, (1, 2))
    if ended.status == 2 and b"full" not in ended.err:
        faults.append(f"room for {room}: the disk is not named: {ended.err!r}")
    kept = committed_files(folder / ".dumpscope/scans.db")
    again = run_forked([*SCAN, str(SAMPLE)], folder)
    faults += find_faults(f"scan {number} with room again", again, (1,))
    if committed_files(folder / ".dumpscope/scans.db") < kept:
        faults.append(f"room for {room}: committed records were lost")
    report = run_forked(["report", "--csv=-", "--limit", "0"], folder)
    if report.out != expected:
        faults.append(f"room for {room}: another result than undisturbed")
    return faults


def full_report(folder: Path, kind: str, room: int, beside_old: bool) -> list[str]:
    """A report is there whole, or not at all; an old one stays as it was."""
    name = f"report.{kind}"
    path = folder / name
    if beside_old:
        path.write_bytes(b"old")
    ended = run_forked(["report", f"--{kind}={name}", "--force"], folder, largest_file=room)
    faults = find_faults(f"{kind} with room for {room}", ended, (2,))
    left = path.read_bytes() if path.exists() else None
    if left != (b"old" if beside_old else None):
        faults.append(f"{kind} with room for {room}: left {left!r:.60}")
    path.unlink(missing_ok=True)
    beside = sorted(entry.name for entry in folder.iterdir())
    if beside != [".dumpscope"]:
        faults.append(f"{kind} with room for {room}: {beside} in the folder")
    return faults


def trees(rounds: int, seed: int) -> Iterator[list[str]]:
    """Hostile trees: scanned, reported, and left as they were."""
    dumps = sample_files()
    for number in range(seed, seed + rounds):
        with new_folder() as folder:
            yield [f"tree {number}: {fault}" for fault in scan_hostile(folder, dumps, number)]


def sample_files() -> list[Path]:
    """True dumps of the fixtures, the small ones."""
    found = sorted(path for path in (ROOT / "fixtures/cases").rglob("*") if path.is_file())
    found += sorted(path for path in SAMPLE.rglob("*") if path.is_file())[:20]
    return [path for path in found if path.stat().st_size <= LARGEST_DUMP_BYTES]


def scan_hostile(folder: Path, dumps: Sequence[Path], seed: int) -> list[str]:
    tree = folder / "dump"
    make_hostile_tree(tree, dumps, seed)
    before = snapshot(tree)
    here = folder / "here"
    here.mkdir()
    table = run_forked([*SCAN, str(tree)], here)
    faults = find_faults("scan", table, (0, 1, 3))
    document = run_forked(
        [*SCAN, str(tree), "--stats", "full", "--format", "json", "--limit", "0"], here
    )
    faults += find_faults("document", document, (0, 1, 3))
    faults += list_faults_of_json(document.out)
    if document.status != table.status:
        faults.append(f"exit status {table.status}, with full statistics {document.status}")
    written = {"report.csv", "report.xlsx", "report.html"}
    reports = run_forked(
        ["report", *(f"--{name.partition('.')[2]}={name}" for name in sorted(written))], here
    )
    faults += find_faults("report", reports, (0,))
    if (here / "report.xlsx").exists():
        faults += list_faults_of_workbook(here / "report.xlsx")
    if {entry.name for entry in here.iterdir()} != {".dumpscope", *written}:
        faults.append(f"in the folder: {sorted(entry.name for entry in here.iterdir())}")
    if {entry.name for entry in folder.iterdir()} != {"dump", "here"}:
        faults.append(f"beside it: {sorted(entry.name for entry in folder.iterdir())}")
    if snapshot(tree) != before:
        faults.append("the tree was changed")
    return faults


def readers(rounds: int, seed: int) -> Iterator[list[str]]:
    """Damaged files of every format, read to the end in this process, a thousand a round."""
    sys.path.insert(0, str(ROOT / "tests"))
    from dumpscope.plugins import load_readers
    from reader_fuzz import exhaust
    from test_contract import SAMPLES

    known = {reader.name: reader for reader in load_readers().readers}
    files = [(name, sample) for name, make in SAMPLES.items() for sample in make()]
    chance = random.Random(seed)
    for _ in range(rounds):
        faults = []
        for _ in range(1000):
            name, sample = chance.choice(files)
            content = damage(sample.content, chance, WORDS)
            try:
                exhaust(known[name], content, sample.name)
            except Exception as error:  # noqa: BLE001 - that is what is looked for
                faults.append(f"{name}: {error!r} of {content[:2000]!r}")
        yield faults


PARTS: dict[str, Callable[[int, int], Iterator[list[str]]]] = {
    "kill": kill, "disk": disk, "trees": trees, "readers": readers,
}  # fmt: skip
USUAL_ROUNDS = {"kill": 200, "disk": 100, "trees": 2000, "readers": 1000}


def import_all() -> None:
    """Load what commands load when they need it: once, not in every copy."""
    import dumpscope.reporters.document
    import dumpscope.reporters.excel
    import dumpscope.reporters.terminal
    import dumpscope.reporters.webpage
    import dumpscope.scanning  # noqa: F401 - to have it loaded


def main(arguments: Sequence[str]) -> int:
    """Run the parts that were asked for; the status says whether anything was found."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part")
    parser.add_argument("--rounds", type=int, help="rounds of each part")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    import_all()
    total = 0
    for name in options.only or PARTS:
        started = time.monotonic()
        rounds = found = 0
        for faults in PARTS[name](options.rounds or USUAL_ROUNDS[name], options.seed):
            rounds += 1
            found += len(faults)
            for fault in faults:
                print(f"{name}: {fault}", flush=True)
        took_s = time.monotonic() - started
        print(f"{name}: {rounds} rounds, {found} faults, {took_s:.0f} s", flush=True)
        total += found
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
