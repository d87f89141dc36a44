"""Fixtures that several test modules share, and a summary that names what was not tested."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tarfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from browser import start_browser  # noqa: F401 - the fixture `browser`
from network_score import Score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
ARCHIVES = ROOT.parent / "shared" / "corpus"
NO_CORPUS = "no corpus of real dumps here (DUMPSCOPE_CORPUS or ../shared/corpus)"

# Bounded, and the same on every machine: nothing here may depend on how fast it is.
settings.register_profile(
    "dumpscope",
    deadline=None,
    max_examples=60,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("dumpscope")

# Where the suite itself was started in the background Ctrl-C is ignored, and so it would be by the
# programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def score(record_property: Callable[[str, object], None]) -> Iterator[Score]:
    """Counts how often rank 1 is right; the summary of the run adds them up."""
    kept = Score(record_property)
    yield kept
    kept.close()


@pytest.fixture(scope="session")
def fixture_dir() -> Path:
    """The folder `fixtures/` of the source tree."""
    return ROOT / "fixtures"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Root of the unpacked corpus, `<family>/<case>/` below it; skips where there is none."""
    given = os.environ.get("DUMPSCOPE_CORPUS")
    if given:
        root = Path(given)
        if not root.is_dir():
            pytest.fail(f"DUMPSCOPE_CORPUS is {given!r}, which is no folder")
        yield root
        return
    archives = sorted(ARCHIVES.glob("*.tar.xz"))
    if not archives:
        pytest.skip(NO_CORPUS)
    root = tmp_path_factory.mktemp("corpus")
    for archive in archives:
        unpack(archive, root / archive.name.removesuffix(".tar.xz"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the user's own store, configuration and language."""
    monkeypatch.delenv("DUMPSCOPE_STORE", raising=False)
    monkeypatch.delenv("ASCEND_DUMP_PATH", raising=False)
    monkeypatch.delenv("ASCEND_WORK_PATH", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg-state"))


def unpack(archive: Path, target: Path) -> None:
    """Unpack files, folders and links of `archive` below `target`, and nothing anywhere else.

    Links are made as they are, also dangling and circular ones: they are what some cases are
    about. They come last, so that nothing can be written through one.
    """
    target.mkdir(parents=True)
    links: list[tuple[Path, str]] = []
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = PurePosixPath(member.name).parts
            if member.name.startswith("/") or ".." in parts:
                raise ValueError(f"{archive.name}: {member.name!r} leads out of the archive")
            path = target.joinpath(*parts)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isreg():
                path.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                assert content is not None
                with path.open("xb") as out:
                    shutil.copyfileobj(content, out)
                path.chmod(stat.S_IMODE(member.mode) & 0o777)
                os.utime(path, (member.mtime, member.mtime))
            elif member.issym():
                links.append((path, member.linkname))
    for path, linkname in links:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(linkname)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was skipped and why, so that a green run cannot hide it; tell the hit rate."""
    told = [
        tuple(map(int, str(value).split()))
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "causality" and report.when == "teardown"
    ]
    if told:
        right, asked, named = map(sum, zip(*told, strict=True))
        terminalreporter.section("causality")
        terminalreporter.line(
            f"rank 1 was right in {right} of {asked} networks ({right / max(asked, 1):.0%}); in "
            f"{named} more the dump cannot tell, and the operator at fault was named"
        )
    reasons: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        reasons.setdefault(str(reason).removeprefix("Skipped: "), []).append(report.nodeid)
    if not reasons:
        return
    terminalreporter.section("not tested here")
    for reason, tests in sorted(reasons.items()):
        modules = sorted({test.partition("::")[0] for test in tests})
        terminalreporter.line(f"{len(tests)} skipped: {reason}")
        terminalreporter.line(f"    in {', '.join(modules)}")
