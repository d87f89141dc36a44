"""Rank maps in both forms, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from dumpscope.errors import ConfigError
from dumpscope.ranks.rankmap import load_rank_map


def written(folder: Path, text: str, name: str = "ranks.json") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_json_and_csv_say_the_same(tmp_path: Path) -> None:
    in_json = written(
        tmp_path, '{"0": {"tp": 0, "pp": 0, "dp": 0}, "1": {"tp": 1, "pp": 0, "dp": 0}}'
    )
    in_csv = written(tmp_path, "\ufeffRank, tp,pp,dp\r\n0,0,0,0\r\n\r\n1,1,0,0\r\n", "ranks.csv")
    expected = {0: {"tp": 0, "pp": 0, "dp": 0}, 1: {"tp": 1, "pp": 0, "dp": 0}}
    assert load_rank_map(in_json).coordinates == expected
    assert load_rank_map(in_csv).coordinates == expected
    assert load_rank_map(in_csv).order is None


def test_optional_dimensions_and_any_ranks_may_be_given(tmp_path: Path) -> None:
    topology = load_rank_map(written(tmp_path, "rank,pp,ep\n12,1,0\n7,0,3\n"))
    assert topology.coordinates == {12: {"pp": 1, "ep": 0}, 7: {"pp": 0, "ep": 3}}
    assert topology.dimensions == ("ep", "pp")


def test_a_dimension_that_tells_ranks_apart_is_used(tmp_path: Path) -> None:
    text = "rank,tp,pp,dp,cp\n0,0,0,0,0\n1,0,0,0,1\n"
    assert load_rank_map(written(tmp_path, text)).dimensions == ("cp",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a header like rank,tp,pp,dp"),
        ("tp,pp,dp\n0,0,0\n", "line 1: expected a header"),
        ("rank,tp,tp\n0,0,0\n", "line 1: expected a header"),
        ("rank,tp,pp,dp\n", "names no rank"),
        ("rank,tp,pp,dp\n0,0,0\n", "line 2: expected 4 cells, found 3"),
        ("rank,tp,pp,dp\n0,0,0,x\n", "line 2: dp: expected a number from 0, found 'x'"),
        ("rank,tp,pp,dp\n-1,0,0,0\n", "line 2: expected a rank, found '-1'"),
        ("rank,tp,pp,dp\n1,0,0,0\n1,1,0,0\n", "line 3: rank 1 is there twice"),
        ("rank,tp,pp,dp\n0,1,0,0\n4,1,0,0\n", "ranks 0 and 4 have the same coordinates tp=1 dp=0"),
        ("rank,tp,zz\n0,0,0\n", "'zz' is no dimension; known: tp, cp, ep, dp, pp"),
        ("rank\n0\n", "no dimension is given"),
        ("[]", "expected an object of ranks, found a list"),
        ("{}", "names no rank"),
        ('{"0": 3}', "rank '0': expected an object"),
        ('{"0": {"tp": true}}', "tp: expected a number from 0, found True"),
        ('{"0": {"tp": 1.5}}', "tp: expected a number from 0, found 1.5"),
        ('{"a": {"tp": 1}}', "expected a rank, found 'a'"),
        ('{"0": {"tp": 0}, "0": {"tp": 1}}', "'0' is there twice"),
        ('{"0": {"tp": 0}, "1": {"pp": 1}}', "expected tp as for the ranks before, found pp"),
        ('{"0": {"tp": 0}', "the rank map is no JSON"),
        ('{"0":' * 100_000, "the rank map is no JSON"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_rank_map(path)
    assert str(caught.value).startswith(path)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_rank_map(str(tmp_path / "none.json"))
    binary = tmp_path / "binary"
    binary.write_bytes(b"rank,tp\xff\n")
    with pytest.raises(ConfigError, match="at 0x7: expected a rank map in UTF-8"):
        load_rank_map(str(binary))
