"""`dumpscope config` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from dumpscope.aclconfig import PRESETS
from dumpscope.cli.config import config
from dumpscope.cli.main import run_with


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = run_with(["config", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_good_file_is_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("acl.json").write_text('{"dump": {"dump_path": "out"}}')
    assert run(capsys, "check") == (0, "acl.json: CANN accepts it (0 errors, 0 warnings)\n", "")


def test_warnings_alone_are_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.json").write_text('{"dump": {"dump_path": "nowhere"}}')
    status, out, err = run(capsys, "check", "x.json")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("warning: dump.dump_path: 'nowhere' is no folder")
    assert lines[1:] == ["x.json: CANN accepts it (0 errors, 1 warning)"]


def test_what_cann_refuses_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("acl.json").write_text('{"dump": {"dump_path": "out", "dump_mode": "both"}}')
    assert run(capsys, "check") == (
        1,
        "error: dump.dump_mode: 'both' is not allowed, only 'input', 'output', 'all'\n"
        "acl.json: CANN would refuse it (1 error, 0 warnings)\n",
        "",
    )


def test_comments_are_something_that_cann_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("acl.json").write_text('{"dump": {"dump_path": "out"}} // mine\n')
    status, out, _ = run(capsys, "check")
    assert status == 1
    assert "CANN refuses them" in out


@pytest.mark.parametrize("content", [None, b"not json", b"\xff", b"[]"])
def test_what_cannot_be_read_is_status_2(
    capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    if content is not None:
        Path("acl.json").write_bytes(content)
    status, out, err = run(capsys, "check", "acl.json")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "acl.json" in err


def test_hostile_keys_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("acl.json").write_text(
        json.dumps({"dump": {"dump_path": "out", "\x1b[31m\n\ud800key": "\x1b[0m"}})
    )
    status, out, _ = run(capsys, "check")
    assert status == 0
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2
    assert "\\x1b[31m\\n\\ud800key" in out


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_written_and_passes_the_check(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    status, out, err = run(capsys, "init", "--preset", name)
    assert (status, out) == (0, "")
    assert err == (
        "Wrote acl.json. Next: create the folder dump_data, give acl.json to aclInit or "
        "aclmdlSetDump and run the program, then: dumpscope scan acl.json\n"
    )
    Path("dump_data").mkdir()
    assert run(capsys, "check")[:2] == (0, "acl.json: CANN accepts it (0 errors, 0 warnings)\n")


def test_the_folder_and_the_file_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(
        capsys, "init", "--preset", "overflow", "--dump-path", "/data/d", "--output", "my.json"
    )
    assert status == 0
    assert json.loads(Path("my.json").read_text()) == {
        "dump": {"dump_path": "/data/d", "dump_debug": "on"}
    }
    assert "dumpscope scan my.json" in err
    assert not Path("acl.json").exists()


def test_a_dash_is_stdout(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run_with(["config", "init", "--preset", "model", "--output", "-"]) == 0
    captured = capfdbinary.readouterr()
    assert json.loads(captured.out)["dump"]["dump_list"] == [{}]
    assert captured.err == b""
    assert list(Path().iterdir()) == []


def test_nothing_is_overwritten_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    Path("acl.json").write_text("mine")
    status, _, err = run(capsys, "init", "--preset", "model")
    assert status == 2
    assert err == "dumpscope: acl.json: exists already; --force overwrites it\n"
    assert Path("acl.json").read_text() == "mine"
    assert run(capsys, "init", "--preset", "model", "--force")[0] == 0
    assert json.loads(Path("acl.json").read_text())["dump"]["dump_mode"] == "all"
    assert [path.name for path in Path().iterdir()] == ["acl.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "modle"], "'modle' is not one of"),
        ([], "Missing option '--preset'"),
        (["--preset", "model", "--dump-path", ""], "CANN would refuse this acl.json"),
        (["--preset", "model", "--output", "no/folder/acl.json"], "does not exist"),
    ],
)
def test_wrong_usage_is_status_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    status, out, err = run(capsys, "init", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert list(Path().iterdir()) == []


def test_help_lists_the_presets_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    (option,) = (p for p in config.commands["init"].params if p.name == "name")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == tuple(PRESETS)
    for command in ([], ["check"], ["init"]):
        status, out, _ = run(capsys, *command, "--help")
        assert status == 0
        assert "Example: dumpscope config" in out
