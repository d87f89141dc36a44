from __future__ import annotations

from typing import TYPE_CHECKING

from click.testing import CliRunner

from dumpscope import kernel
from dumpscope.cli.main import cli

if TYPE_CHECKING:
    import pytest


def last_line(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["readers", *arguments])
    assert result.exit_code == 0
    return result.output.splitlines()[-1]


def test_verbose_says_what_computes_the_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "describe_kernel", lambda: "not there (no compiler)")
    assert last_line("--verbose") == "C kernel for statistics: not there (no compiler)"


def test_without_verbose_only_readers_are_listed() -> None:
    assert last_line().startswith("    from ")
