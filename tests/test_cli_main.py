"""The program around the commands: exit statuses, streams, and that it starts at all."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from cli_runs import ROOT, environment, run, start
from dumpscope import __version__
from dumpscope.cli import main
from dumpscope.errors import (
    ConfigError,
    OptionsError,
    PluginError,
    ReportError,
    StoreError,
    TruncatedDumpError,
)
from dumpscope.scanning import scan
from dumpscope.store import Store

COMMANDS = sorted(main.COMMANDS)
FULL = (
    "dumpscope: the output cannot be written: No space left on device: make room, or write "
    "somewhere else\n"
)


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Put a function in the place of the command `readers`."""

    def replace(function: Callable[[], None]) -> None:
        monkeypatch.setattr("dumpscope.cli.readers.readers", click.command("readers")(function))

    return replace


# --- exit statuses ---


@pytest.mark.parametrize(
    "error",
    [
        OptionsError("no such thing"),
        ConfigError("acl.json: no such thing"),
        StoreError("scans.db: no such thing"),
        ReportError("x.xlsx: no such thing"),
        PluginError("no such thing"),
        TruncatedDumpError("no such thing", path="a", offset=8),
    ],
)
def test_errors_of_its_own_are_one_sentence_and_2(
    replaced: Callable[[Callable[[], None]], None], error: Exception
) -> None:
    replaced(raising(error))
    ended = run("readers")
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == f"dumpscope: {error}\n"


def test_an_exception_that_nobody_expected_is_2_and_shows_where(
    replaced: Callable[[Callable[[], None]], None],
) -> None:
    for error in (ValueError("a defect"), OSError(2, "no such file"), RecursionError("deep")):
        replaced(raising(error))
        ended = run("readers")
        assert (ended.status, ended.out) == (2, "")
        assert "Traceback (most recent call last)" in ended.err
        assert ended.err.endswith("this is a bug in dumpscope; please report the lines above\n")


def test_ctrl_c_is_130(replaced: Callable[[Callable[[], None]], None]) -> None:
    for error in (KeyboardInterrupt(), click.exceptions.Abort()):
        replaced(raising(error))
        ended = run("readers")
        assert (ended.status, ended.out) == (130, "")
        assert "Traceback" not in ended.err


@pytest.mark.parametrize("status", [0, 1, 2, 3])
def test_a_command_chooses_its_status(
    replaced: Callable[[Callable[[], None]], None], status: int
) -> None:
    replaced(raising(click.exceptions.Exit(status)))
    assert run("readers").status == status


def test_a_full_disk_is_2(replaced: Callable[[Callable[[], None]], None]) -> None:
    replaced(raising(OSError(28, "No space left on device")))
    ended = run("readers")
    assert (ended.status, ended.err) == (
        2,
        FULL,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "arguments",
    [
        ["readers"],
        ["--version"],
        ["--help"],
        ["checks"],
        ["scan", "DUMP"],
        ["scan", "--format", "json", "DUMP"],
        ["report", "--csv", "-"],
        ["report", "--html", "-"],
        ["trace"],
        ["trend"],
        ["scans", "list"],
    ],
)
def test_a_stdout_that_takes_nothing_is_2(
    arguments: list[str], fixture_dir: Path, tmp_path: Path
) -> None:
    dump = str(fixture_dir / "sample_dump")
    store = str(tmp_path / "scans.db")
    with Store.open(store) as scans:
        scan(dump, store=scans)
    arguments = [dump if argument == "DUMP" else argument for argument in arguments]
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(
            [sys.executable, "-m", "dumpscope", *arguments],
            env={**environment(), "DUMPSCOPE_STORE": store},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 2
    assert result.stderr == FULL


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["--nonsense"], "--nonsense"),
        (["scan", "--nonsense"], "--nonsense"),
        (["readers", "more"], "unexpected extra argument"),
        (["config", "nonsense"], "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_2(arguments: list[str], said: str) -> None:
    ended = run(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
    assert "Traceback" not in ended.err


def test_reserved_words_are_no_commands() -> None:
    for name in ("compare", "diagnose", "log", "repro"):
        assert run(name).status == 2


# --- help and version ---


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_command(option: str) -> None:
    ended = run(option)
    assert (ended.status, ended.err) == (0, "")
    listed = re.findall(r"^  ([a-z]+) {2,}\S", ended.out, re.MULTILINE)
    assert set(listed) >= set(COMMANDS)
    assert "Example: dumpscope scan" in ended.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    ended = run(name, "--help")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: dumpscope {name} ")
    assert "Example: dumpscope" in " ".join(ended.out.split())


def test_commands_say_the_same_of_themselves_in_both_places() -> None:
    context = click.Context(main.cli)
    for name in COMMANDS:
        command = main.cli.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_version() -> None:
    ended = run("--version")
    assert (ended.status, ended.out, ended.err) == (0, f"dumpscope {__version__}\n", "")


def test_without_a_command_the_help_is_shown() -> None:
    ended = run()
    text = ended.out + ended.err
    assert "Commands:" in text
    assert ended.status in (0, 2)


def test_python_m_is_the_same_program() -> None:
    result = start("--version")
    assert (result.returncode, result.stdout, result.stderr) == (
        0,
        f"dumpscope {__version__}\n",
        "",
    )
    assert start("nonsense").returncode == 2


# --- streams ---


@pytest.mark.parametrize("command", ["readers", "readers 2>&1", "nonsense 2>&1", "checks"])
def test_a_pipe_that_closes_changes_nothing(command: str) -> None:
    status = 2 if command.startswith("nonsense") else 0
    script = f'set -o pipefail; "$0" -m dumpscope {command} | true; echo "$?"'
    result = subprocess.run(
        ["bash", "-c", script, sys.executable],
        env=environment(LC_ALL="C.UTF-8"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == (f"{status}\n", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    script = f'"$0" -m dumpscope scan "$1" --store "$2" {closed}'
    store = tmp_path / "scans.db"
    result = subprocess.run(
        ["bash", "-c", script, sys.executable, str(ROOT / "fixtures/cases/clean"), str(store)],
        env=environment(LC_ALL="C.UTF-8"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    again = run("scans", "list", "--json", "--store", store)
    assert len(json.loads(again.out)) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_talk_that_cannot_be_written_changes_no_result(tmp_path: Path) -> None:
    script = '"$0" -m dumpscope scan "$1" --store "$2" --progress 2>/dev/full'
    result = subprocess.run(
        [
            *("bash", "-c", script, sys.executable),
            *(str(ROOT / "fixtures/cases/clean"), str(tmp_path / "scans.db")),
        ],
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_pipe_that_does_not_wait_gets_everything() -> None:
    program = (
        "import os, sys\n"
        "from dumpscope.cli.streams import prepare_streams\n"
        "os.set_blocking(1, False)\n"
        "prepare_streams()\n"
        "sys.stdout.write('x' * 1_000_000 + '\\n')\n"
        "sys.stdout.flush()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err, out) == (0, b"", b"x" * 1_000_000 + b"\n")


@pytest.mark.parametrize("arguments", [["scan", "{dump}"], ["report", "--xlsx"], ["show", "x"]])
def test_a_current_folder_that_is_gone_is_one_sentence(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ended = run(*(text.format(dump=ROOT / "fixtures/cases/clean") for text in arguments))
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith("dumpscope: ")
    assert "bug" not in ended.err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files: raise its limits"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "Cannot allocate memory: raise its"),
        (BlockingIOError(errno.EAGAIN, "Try again"), "Try again: raise its limits"),
        (MemoryError(), "there is not enough memory: raise the limit"),
    ],
    ids=["files", "memory", "processes", "python"],
)
def test_what_the_system_does_not_give_is_one_sentence(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Store, "open", fail)
    ended = run("scans", "list", "--store", "s.db")
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert words in ended.err
    assert "lower --jobs" in ended.err


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "POSIX", "nonsense"])
def test_any_locale(locale: str, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9-\xe5\xb1\x82.txt"
    with open(name, "wb") as file:
        file.write(b"no dump")
    for arguments in (["readers"], ["checks", "--lang", "zh"], ["show", os.fsdecode(name)]):
        result = subprocess.run(
            [sys.executable, "-X", "utf8=0", "-m", "dumpscope", *arguments],
            env=environment(LC_ALL=locale, PYTHONCOERCECLOCALE="0"),
            capture_output=True,
            check=False,
            cwd=tmp_path,
        )
        assert result.returncode == (3 if arguments[0] == "show" else 0), result.stderr
        assert b"Traceback" not in result.stderr


def test_a_name_that_is_not_utf_8_is_named_in_errors(tmp_path: Path) -> None:
    missing = os.fsencode(tmp_path) + b"/\xff\xfe"
    for command in ("scan", "show", "export"):
        more = ["--to", "npy"] if command == "export" else []
        result = subprocess.run(
            [sys.executable, "-m", "dumpscope", command, missing, *more],
            env=environment(),
            capture_output=True,
            check=False,
            cwd=tmp_path,
        )
        assert (result.returncode, result.stdout) == (2, b"")
        assert b"Traceback" not in result.stderr
        assert b"\\udcff" in result.stderr or b"\\xff" in result.stderr


def test_signals_that_end_programs_end_this_one(tmp_path: Path) -> None:
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import dumpscope.cli.readers as module, sys, time\n"
            "import click\n"
            "from dumpscope.cli.main import run\n"
            "@click.command()\n"
            "def slow():\n"
            "    print('begun', flush=True)\n"
            "    time.sleep(60)\n"
            "module.readers = slow\n"
            "sys.argv = ['dumpscope', 'readers']\n"
            "run()\n",
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n"
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "Traceback" not in err


def test_an_interrupt_waits_for_imports_and_breaks_no_reader(tmp_path: Path) -> None:
    info = tmp_path / "slow_reader-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-reader\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dumpscope.readers]\nslow = slow_reader:Slow\n")
    # As NumPy does it.
    (tmp_path / "slow_reader.py").write_text(
        "import os, signal, sys, time\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.2)\n"
        "except KeyboardInterrupt:\n"
        "    raise ImportError('slow_reader failed to import')\n"
        "print('loaded', file=sys.stderr)\n"
        "class Slow:\n"
        "    name, formats, versions, companions = 'slow', 'f', 'v', {}\n"
        "    def sniff(self, head, file): time.sleep(60)\n"
        "    def read(self, source): yield from ()\n"
    )
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "file").write_bytes(b"x")
    ended = start(
        *("scan", tmp_path / "dump", "--store", tmp_path / "s.db"),
        env=environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)])),
    )
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr.startswith("loaded\n")
    assert "Traceback" not in ended.stderr
    assert "failed to import" not in ended.stderr


def test_an_interrupt_is_not_lost_where_something_is_freed() -> None:
    program = (
        "import os, signal, time\n"
        "from dumpscope.cli.interrupts import prepare_interrupts\n"
        "prepare_interrupts()\n"
        "class Freed:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.2)\n"
        "try:\n"
        "    Freed()\n"
        "    print('freed', flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split()[-1] == "interrupted"
