"""`dumpscope trace`: where it begins, what it writes, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cli_runs import ROOT, Ended, environment, run, start

FORMS = ("html", "svg", "dot", "json")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stores of three scans."""
    folder = tmp_path_factory.mktemp("stores")
    for name, dump in (
        ("sample", "fixtures/sample_dump"),
        ("ranks", "fixtures/cases/all_reduce"),
        ("clean", "fixtures/cases/clean"),
    ):
        ended = run("scan", ROOT / dump, "--store", folder / f"{name}.db")
        assert ended.status in {0, 1}, ended.err
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, in English."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sample(stores: Path, place: Path) -> Path:
    return stores / "sample.db"


def trace(store: Path, *arguments: str | Path) -> Ended:
    return run("trace", *arguments, "--store", store)


def written(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_the_tree_begins_at_finding_1(sample: Path) -> None:
    ended = trace(sample)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == (
        "BatchMatMulV2 layer1_attn_scores is where it began (#1, origin): step 1, rank 0, stream 2."
    )
    assert any(line.startswith("↓ address Muls layer1_attn_scale ") for line in lines)
    # The longest name with its verdict beside it, not at the other end of the line.
    (turn,) = [line for line in lines if "(NaN from here)" in line]
    assert turn.startswith("↓ address SoftmaxV2 layer1_attn_softmax (NaN from here)  propagated  ")
    assert "29 operators grew out of it, on rank 0, in step 1." in lines


def test_the_culprit_of_several_ranks(stores: Path, place: Path) -> None:
    ended = trace(stores / "ranks.db", "--json=-")
    nodes = json.loads(ended.out)["nodes"]
    truth = {n["device"] for n in nodes if n["part"] in ("start", "joined") and not n["parents"]}
    received = {n["device"] for n in nodes if n["verdict"] == "received"}
    assert truth
    assert received
    assert not truth & received
    senders = {
        nodes[p["node"]]["device"] for n in nodes for p in n["parents"]
        if p["evidence"] == "communication"
    }  # fmt: skip
    assert senders == truth


def test_an_operator_by_name_with_the_way_to_it(sample: Path) -> None:
    ended = trace(sample, "layer1_attn_softmax")
    assert ended.out.startswith("What grew out of SoftmaxV2 layer1_attn_softmax (#4, propagated)")
    assert "The bad value came to it from #1 origin BatchMatMulV2 layer1_attn_scores" in ended.out
    assert "(asked for)" in ended.out


def test_a_type_with_several_findings_shows_the_best_and_names_the_others(sample: Path) -> None:
    ended = trace(sample, "BatchMatMulV2")
    assert "(#1, origin)" in ended.out.splitlines()[0]
    assert "findings have this name; the best-ranked is shown (others: #" in ended.err


def test_a_finding_by_its_number(sample: Path) -> None:
    assert "layer1_attn_mask (#3" in trace(sample, "--finding", "3").out.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--finding", "999"], "--finding 999: there is no such finding; the scan has 30"),
        (["--finding", "0"], "--finding"),
        (["layer1_attn_score"], "did you mean layer1_attn_scores"),
        (["--step", "7"], "no finding is of that step and rank"),
        (["--html="], "--html: expected a path, found an empty one"),
        (["--html=-", "--svg=-"], "--html and --svg both go to stdout"),
        (["--dot=a", "--json=./a"], "--dot and --json both go to ./a"),
        (["--limit=-1"], "--limit"),
        (["--scan", "nothing"], "nothing"),
        (["--svg=no/such/a.svg"], "the folder no/such does not exist"),
    ],
)
def test_wrong_usage_is_status_2_and_writes_nothing(
    sample: Path, place: Path, arguments: list[str], message: str
) -> None:
    ended = trace(sample, *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert written(place) == set()


def test_every_form_is_written_under_its_default_name(sample: Path, place: Path) -> None:
    ended = trace(sample, *(f"--{form}" for form in FORMS))
    assert (ended.status, ended.out) == (0, "")
    assert written(place) == {f"dumpscope-trace.{form}" for form in FORMS}
    for form in FORMS:
        assert f"wrote dumpscope-trace.{form}\n" in ended.err
    assert ET.parse(place / "dumpscope-trace.svg").getroot().tag.endswith("svg")
    assert json.loads((place / "dumpscope-trace.json").read_bytes())["counts"]["affected"] == 29
    assert (place / "dumpscope-trace.dot").read_text().startswith("digraph trace {")
    parser = HTMLParser()
    parser.feed((place / "dumpscope-trace.html").read_text())
    parser.close()


def test_a_path_may_be_given_and_a_dash_is_stdout(sample: Path, place: Path) -> None:
    ended = trace(sample, "layer1_attn_mask", "--svg", "way.svg", "--json=-")
    assert ended.status == 0
    assert json.loads(ended.out)["nodes"][0]["op_name"] == "layer1_attn_scores"
    assert written(place) == {"way.svg"}


def test_an_existing_file_stays_without_force(sample: Path, place: Path) -> None:
    (place / "dumpscope-trace.json").write_text("precious")
    ended = trace(sample, "--html", "--json")
    assert ended.status == 2
    assert "exists already; --force overwrites it" in ended.err
    assert written(place) == {"dumpscope-trace.json"}
    assert trace(sample, "--html", "--json", "--force").status == 0
    assert (
        json.loads((place / "dumpscope-trace.json").read_bytes())["schema"] == "dumpscope.trace/1"
    )


def test_a_clean_scan_has_nothing_to_show(stores: Path, place: Path) -> None:
    store = stores / "clean.db"
    ended = trace(store)
    assert ended.status == 0
    assert ended.out == "The scan has no findings: there is no way of a bad value to show.\n"
    assert trace(store, *(f"--{form}" for form in FORMS)).status == 0
    assert json.loads((place / "dumpscope-trace.json").read_bytes())["nodes"] == []


def test_the_language(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trace(sample, "--lang", "zh").out.startswith("起点是 BatchMatMulV2")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert trace(sample).out.startswith("起点是 BatchMatMulV2")
    # What programs read is English unless a language was asked for.
    assert "is where it began" in json.loads(trace(sample, "--json=-").out)["summary"][0]
    assert "起点" in json.loads(trace(sample, "--json=-", "--lang=zh").out)["summary"][0]


def test_a_limit_of_0_shows_all(sample: Path) -> None:
    assert "only follow" in trace(sample).out
    shown = trace(sample, "--limit", "0").out
    assert "only follow" not in shown
    assert shown.count("address ") >= 29


def test_the_c_locale_gets_ascii(sample: Path) -> None:
    ended = start("trace", "--store", sample, env=environment(LC_ALL="C", COLUMNS="80"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.isascii()
    assert "v address Muls layer1_attn_scale" in ended.stdout


def test_help_has_an_example(place: Path) -> None:
    ended = run("trace", "--help")
    assert ended.status == 0
    for text in ("--html [PATH]", "--finding N", "Example: dumpscope trace --html"):
        assert text in ended.out
    assert "trace " in run("--help").out
