"""acl.json: CANN's rules one by one, and what follows from a file that keeps them."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.aclconfig import (
    DEFAULT_DUMP_PATH,
    PRESETS,
    AclConfig,
    check_config,
    is_config,
    load_config,
    preset,
)
from dumpscope.aclconfig import loading as loading_module
from dumpscope.aclconfig.rules import check_document
from dumpscope.aclconfig.values import parse_steps, split_address
from dumpscope.errors import ConfigError, OptionsError


def issues_of(dump: object) -> list[tuple[str, str]]:
    return [(issue.severity, issue.key) for issue in check_document({"dump": dump})]


def errors_of(dump: object) -> list[str]:
    return [key for severity, key in issues_of(dump) if severity == "error"]


def config_of(tmp_path: Path, dump: object, **options: Any) -> AclConfig:
    path = tmp_path / "acl.json"
    path.write_text(json.dumps({"dump": dump}))
    return load_config(path, **options)


P: dict[str, object] = {"dump_path": "/d"}
ENTRY = "dump.dump_list[0]"

ACCEPTED: list[dict[str, object]] = [
    P,
    {**P, "dump_mode": "input"},
    {**P, "dump_mode": "all", "dump_level": "kernel", "dump_op_switch": "on", "dump_debug": "off"},
    {**P, "dump_data": "stats", "dump_stats": ["Max", "Min", "Avg", "Nan", "Negative Inf",
                                               "Positive Inf", "L2norm"]},
    {**P, "dump_kernel_data": "printf,tensor,assert,timestamp"},
    {**P, "dump_kernel_data": "all"},
    {**P, "dump_step": ""},
    {**P, "dump_step": "0|3-5|10|7-7"},
    {**P, "dump_step": "|".join("1" for _ in range(100))},
    {"dump_path": "x" * 512},
    {"dump_path": "10.1.2.3:/data"},
    {**P, "dump_list": []},
    {**P, "dump_list": [{}]},
    {**P, "dump_list": [{"model_name": "m", "layer": ["a", "b"]}, {"layer": ["c"]}]},
    {**P, "dump_level": "op", "dump_list": [
        {"optype_blacklist": [{"name": "conv", "pos": ["input0"]}] * 100,
         "opname_blacklist": [{"name": "conv", "pos": ["output0", "input1"]}]}]},
    {**P, "dump_level": "op", "dump_list": [
        {"model_name": "m", "opname_range": [{"begin": "a", "end": "b"}]}]},
    # an exception scene needs nothing else, and nothing else is checked
    {"dump_scene": "lite_exception"},
    {"dump_scene": "aic_err_brief_dump", "dump_debug": "off", "dump_op_switch": "off"},
    {"dump_scene": "aic_err_norm_dump", "dump_step": "5-1", "dump_stats": []},
    {"dump_scene": "aic_err_detail_dump", "dump_path": "", "dump_list": [{"layer": []}]},
    {**P, "dump_scene": "watcher", "dump_list": [{"layer": ["a"], "watcher_nodes": ["c"]}]},
    {**P, "dump_scene": "watcher", "dump_mode": "output",
     "dump_list": [{"watcher_nodes": ["c"]}]},
    # overflow detection: conflicts of step, list and stats are not looked at
    {**P, "dump_debug": "on"},
    {**P, "dump_debug": "on", "dump_step": "5-1", "dump_stats": [],
     "dump_list": [{"model_name": "", "layer": [], "watcher_nodes": ["a"]}]},
]  # fmt: skip


@pytest.mark.parametrize("dump", ACCEPTED, ids=json.dumps)
def test_cann_accepts(dump: dict[str, object]) -> None:
    assert issues_of(dump) == []


@pytest.mark.parametrize(
    ("dump", "keys"),
    [
        # types, always
        ([], ["dump"]),
        (None, ["dump"]),
        ("on", ["dump"]),
        ({**P, "dump_mode": 1}, ["dump.dump_mode"]),
        ({**P, "dump_mode": None}, ["dump.dump_mode"]),
        ({**P, "dump_debug": True}, ["dump.dump_debug"]),
        ({**P, "dump_step": 3}, ["dump.dump_step"]),
        ({"dump_path": ["/d"]}, ["dump.dump_path"]),
        ({**P, "dump_scene": ["watcher"]}, ["dump.dump_scene"]),
        ({**P, "dump_scene": {}}, ["dump.dump_scene"]),
        ({**P, "dump_kernel_data": ["all"]}, ["dump.dump_kernel_data"]),
        ({**P, "dump_data": "stats", "dump_stats": "Max"}, ["dump.dump_stats"]),
        ({**P, "dump_data": "stats", "dump_stats": ["Max", 1]}, ["dump.dump_stats[1]"]),
        ({**P, "dump_list": {}}, ["dump.dump_list"]),
        ({**P, "dump_list": [{}, "m"]}, ["dump.dump_list[1]"]),
        ({**P, "dump_list": [{"model_name": 1}]}, [f"{ENTRY}.model_name"]),
        ({**P, "dump_list": [{"layer": "a"}]}, [f"{ENTRY}.layer"]),
        ({**P, "dump_list": [{"layer": ["a", 2]}]}, [f"{ENTRY}.layer[1]"]),
        (
            {**P, "dump_level": "op", "dump_list": [{"optype_blacklist": {}}]},
            [f"{ENTRY}.optype_blacklist"],
        ),
        (
            {**P, "dump_level": "op",
             "dump_list": [{"opname_blacklist": [1, {"name": 2, "pos": "input0"},
                                                 {"name": "a", "pos": [3]}]}]},
            [f"{ENTRY}.opname_blacklist[0]", f"{ENTRY}.opname_blacklist[1].name",
             f"{ENTRY}.opname_blacklist[1].pos", f"{ENTRY}.opname_blacklist[2].pos[0]"],
        ),
        (
            {**P, "dump_level": "op",
             "dump_list": [{"optype_blacklist": [{"name": "a", "pos": ["input0"]}] * 101}]},
            [f"{ENTRY}.optype_blacklist"],
        ),
        (
            {**P, "dump_level": "op",
             "dump_list": [{"model_name": "m", "opname_range": [{"begin": 1, "end": "b"}]}]},
            [f"{ENTRY}.opname_range[0].begin"],
        ),
        # ... also where nothing else is checked
        ({"dump_scene": "lite_exception", "dump_mode": "outputs", "dump_list": 3},
         ["dump.dump_mode", "dump.dump_list"]),
        ({**P, "dump_debug": "on", "dump_level": "ops"}, ["dump.dump_level"]),
        # values
        ({**P, "dump_mode": "both"}, ["dump.dump_mode"]),
        ({**P, "dump_mode": "All"}, ["dump.dump_mode"]),
        ({**P, "dump_mode": ""}, ["dump.dump_mode"]),
        ({**P, "dump_data": "tensors"}, ["dump.dump_data"]),
        ({**P, "dump_level": "model"}, ["dump.dump_level"]),
        ({**P, "dump_op_switch": "yes"}, ["dump.dump_op_switch"]),
        ({**P, "dump_debug": "true"}, ["dump.dump_debug"]),
        ({**P, "dump_scene": "exception"}, ["dump.dump_scene"]),
        ({**P, "dump_kernel_data": "printf, tensor"}, ["dump.dump_kernel_data"]),
        ({**P, "dump_kernel_data": ""}, ["dump.dump_kernel_data"]),
        ({**P, "dump_data": "stats", "dump_stats": ["NaN"]}, ["dump.dump_stats[0]"]),
        # exception scenes
        ({"dump_scene": "lite_exception", "dump_debug": "on"}, ["dump.dump_scene"]),
        ({"dump_scene": "aic_err_norm_dump", "dump_op_switch": "on"}, ["dump.dump_scene"]),
        ({"dump_scene": "aic_err_brief_dump", "dump_op_switch": "on", "dump_debug": "on"},
         ["dump.dump_scene", "dump.dump_scene"]),
        # dump_path
        ({}, ["dump.dump_path"]),
        ({"dump_debug": "on"}, ["dump.dump_path"]),
        ({"dump_path": ""}, ["dump.dump_path"]),
        ({"dump_path": "x" * 513}, ["dump.dump_path"]),
        ({"dump_path": "10.1.2.3:"}, ["dump.dump_path"]),
        ({"dump_scene": "watcher", "dump_list": [{"watcher_nodes": ["a"]}]}, ["dump.dump_path"]),
        # watcher
        ({**P, "dump_scene": "watcher", "dump_debug": "on",
          "dump_list": [{"watcher_nodes": ["a"]}]}, ["dump.dump_scene"]),
        ({**P, "dump_scene": "watcher", "dump_op_switch": "on",
          "dump_list": [{"watcher_nodes": ["a"]}]}, ["dump.dump_scene"]),
        ({**P, "dump_scene": "watcher", "dump_mode": "all",
          "dump_list": [{"watcher_nodes": ["a"]}]}, ["dump.dump_mode"]),
        ({**P, "dump_scene": "watcher", "dump_list": [{"watcher_nodes": ["a"]}, {}]},
         ["dump.dump_list[1].watcher_nodes"]),
        ({**P, "dump_scene": "watcher", "dump_list": [{"watcher_nodes": []}]},
         [f"{ENTRY}.watcher_nodes"]),
        ({**P, "dump_scene": "watcher",
          "dump_list": [{"watcher_nodes": ["a"], "model_name": "m"}]}, [f"{ENTRY}.model_name"]),
        ({**P, "dump_list": [{"watcher_nodes": ["a"]}]}, [f"{ENTRY}.watcher_nodes"]),
        # overflow detection
        ({**P, "dump_debug": "on", "dump_op_switch": "on"}, ["dump.dump_debug"]),
        # dump_step
        *[({**P, "dump_step": step}, ["dump.dump_step"])
          for step in ("5-3", "a", "1|", "|1", "1||2", "-1", "1-", "1-2-3", "1,2", " 1", "1 ",
                       "１", "+1", "0x1", "9" * 30, "|".join("1" for _ in range(101)))],
        # dump_list
        ({**P, "dump_list": [{"model_name": ""}]}, [f"{ENTRY}.model_name"]),
        ({**P, "dump_list": [{"layer": []}]}, [f"{ENTRY}.layer"]),
        ({**P, "dump_list": [{"optype_blacklist": []}]}, [f"{ENTRY}.optype_blacklist"]),
        ({**P, "dump_level": "all", "dump_list": [{"opname_blacklist": []}]},
         [f"{ENTRY}.opname_blacklist"]),
        ({**P, "dump_level": "kernel",
          "dump_list": [{"model_name": "m", "opname_range": [{"begin": "a", "end": "b"}]}]},
         [f"{ENTRY}.opname_range"]),
        ({**P, "dump_level": "op", "dump_list": [{"opname_range": [{"begin": "a", "end": "b"}]}]},
         [f"{ENTRY}.opname_range"]),
        ({**P, "dump_level": "op",
          "dump_list": [{"model_name": "m", "opname_range": [{"begin": "", "end": "b"}, {}]}]},
         [f"{ENTRY}.opname_range[0].begin", f"{ENTRY}.opname_range[1].begin",
          f"{ENTRY}.opname_range[1].end"]),
        # dump_stats
        ({**P, "dump_stats": ["Max"]}, ["dump.dump_stats"]),
        ({**P, "dump_data": "tensor", "dump_stats": ["Max"]}, ["dump.dump_stats"]),
        ({**P, "dump_data": "stats", "dump_stats": []}, ["dump.dump_stats"]),
    ],
)  # fmt: skip
def test_cann_refuses(dump: object, keys: list[str]) -> None:
    assert errors_of(dump) == keys


def test_messages_say_what_is_allowed() -> None:
    messages = {
        issue.key: str(issue)
        for issue in check_document(
            {
                "dump": {
                    "dump_path": "/d",
                    "dump_mode": "Output",
                    "dump_debug": 1,
                    "dump_step": "3-1",
                    "dumpdata": "stats",
                    "dump_list": [{"layers": []}],
                }
            }
        )
    }
    assert messages == {
        "dump.dump_mode": "error: dump.dump_mode: 'Output' is not allowed, only 'input', "
        "'output', 'all'; did you mean 'output'?",
        "dump.dump_debug": "error: dump.dump_debug: expected one of 'on', 'off', found a number",
        "dump.dump_step": "error: dump.dump_step: expected at most 100 intervals 'n' or 'n-m' "
        "with n <= m, joined by '|', found '3-1'",
        "dump.dumpdata": "warning: dump.dumpdata: unknown key, CANN ignores it; did you mean "
        "'dump_data'?",
        "dump.dump_list[0].layers": "warning: dump.dump_list[0].layers: unknown key, CANN "
        "ignores it; did you mean 'layer'?",
    }


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, [("error", "dump")]),
        ({"Dump": {}}, [("warning", "Dump"), ("error", "dump")]),
        ({"dump": P, "profiler": {}, "max_opqueue_num": "1"}, []),
        ({"dump": P, "x" * 500: 1}, [("warning", "x" * 59 + "…")]),
        (
            {
                "dump": {
                    **P,
                    "dump_list": [
                        {"model_name": "m"},
                        {"model_name": "m"},
                    ],
                }
            },
            [("warning", "dump.dump_list[1].model_name")],
        ),
        (
            {
                "dump": {
                    **P,
                    "dump_level": "op",
                    "dump_list": [{"optype_blacklist": [{"name": "", "position": []}]}],
                }
            },
            [
                ("warning", f"{ENTRY}.optype_blacklist[0].position"),
                ("warning", f"{ENTRY}.optype_blacklist[0].name"),
                ("warning", f"{ENTRY}.optype_blacklist[0].pos"),
            ],
        ),
        ({"dump": {**P, "dump_scene": "watcher"}}, [("warning", "dump.dump_list")]),
    ],
)
def test_what_is_doubtful(document: dict[str, object], expected: list[tuple[str, str]]) -> None:
    assert [(issue.severity, issue.key) for issue in check_document(document)] == expected


json_values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["dump_path", "dump_scene", "dump_list", "dump_stats", "dump_step", "dump_debug",
             "model_name", "layer", "opname_range", "optype_blacklist", "begin", "name", "pos",
             "watcher_nodes", "dump_level", "?"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


@given(json_values)
def test_any_document_is_checked_without_a_crash(value: object) -> None:
    untouched = copy.deepcopy(value)
    issues = check_document({"dump": value})
    assert repr(value) == repr(untouched)
    assert all(issue.key.startswith("dump") for issue in issues)
    if not isinstance(value, dict):
        assert [issue.key for issue in issues] == ["dump"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("0", ((0, 0),)),
        ("0|3-5|10", ((0, 0), (3, 5), (10, 10))),
        ("007", ((7, 7),)),
        ("5-3", None),
        ("x", None),
    ],
)
def test_steps(text: str, expected: tuple[tuple[int, int], ...] | None) -> None:
    assert parse_steps(text) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("10.0.0.1:/dump", ("10.0.0.1", "/dump")),
        ("/dump", (None, "/dump")),
        ("300.0.0.1:/dump", (None, "300.0.0.1:/dump")),
        ("C:/dump", (None, "C:/dump")),
        ("::1:/dump", (None, "::1:/dump")),
    ],
)
def test_addresses(path: str, expected: tuple[str | None, str]) -> None:
    assert split_address(path) == expected


# --- reading ------------------------------------------------------------------------------------


def test_everything_that_a_scan_wants_to_know(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        {
            "dump_path": "out",
            "dump_mode": "all",
            "dump_data": "stats",
            "dump_op_switch": "on",
            "dump_step": "0|3-5",
            "dump_list": [{"model_name": "m1"}, {"model_name": "m2", "layer": ["a", "b"]}, {}],
        },
        environ={},
        current_folder="/cwd",
    )
    assert config.path == str(tmp_path / "acl.json")
    assert config.strict
    assert config.dump_path == "out"
    assert config.dump_path_candidates() == (str(tmp_path / "out"), "/cwd/out")
    assert (config.dump_mode, config.dump_data, config.dump_scene) == ("all", "stats", None)
    assert (config.dump_debug, config.dump_op_switch) == (False, True)
    assert config.steps == ((0, 0), (3, 5))
    assert [n for n in range(8) if config.asks_for_step(n)] == [0, 3, 4, 5]
    assert config.model_names == ("m1", "m2")
    assert config.layers == ("a", "b")
    assert config.expects == "model"
    assert config.has_inputs
    assert json.loads(json.dumps(config.facts())) == {
        "path": str(tmp_path / "acl.json"),
        "expects": "model",
        "strict_json": True,
        "dump_path": "out",
        "dump_mode": "all",
        "dump_data": "stats",
        "dump_debug": "off",
        "dump_op_switch": "on",
        "dump_scene": None,
        "dump_step": "0|3-5",
        "model_names": ["m1", "m2"],
        "layers": ["a", "b"],
    }


def test_defaults_and_refused_values(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        {"dump_mode": "both", "dump_data": 1, "dump_step": "5-1", "dump_list": [1, {"layer": 2}],
         "dump_scene": []},
    )  # fmt: skip
    assert (config.dump_mode, config.dump_data, config.steps) == ("output", "tensor", ())
    assert config.dump_path is None
    assert config.dump_path_candidates() == ()
    assert config.find_dump_folder() is None
    assert not config.has_inputs
    assert all(config.asks_for_step(n) for n in (0, 10**9))


def test_overflow_detection_expects_nothing(tmp_path: Path) -> None:
    config = config_of(tmp_path, {"dump_path": "out", "dump_debug": "on"})
    assert config.expects == "overflow"
    assert config.has_inputs
    assert config_of(tmp_path, {"dump_path": "out", "dump_debug": "off"}).expects == "model"


def test_a_relative_path_is_looked_for_beside_the_file_first(tmp_path: Path) -> None:
    beside, current = tmp_path / "beside", tmp_path / "current"
    (beside / "out").mkdir(parents=True)
    (current / "out").mkdir(parents=True)
    config = config_of(beside, {"dump_path": "out"}, current_folder=str(current))
    assert config.find_dump_folder() == str(beside / "out")
    (beside / "out").rmdir()
    assert config.find_dump_folder() == str(current / "out")
    (beside / "out").write_text("a file")
    assert config.find_dump_folder() == str(current / "out")


def test_an_absolute_or_remote_path_has_one_candidate(tmp_path: Path) -> None:
    assert config_of(tmp_path, {"dump_path": "/a/../b"}).dump_path_candidates() == ("/b",)
    assert config_of(tmp_path, {"dump_path": "1.2.3.4:/b"}).dump_path_candidates() == ("/b",)
    assert config_of(tmp_path, {"dump_path": "a\0b"}).dump_path_candidates() == ()


@pytest.mark.parametrize("scene", ["lite_exception", "aic_err_detail_dump"])
def test_exception_scenes_prefer_the_variables(tmp_path: Path, scene: str) -> None:
    environ = {"ASCEND_DUMP_PATH": "/first", "ASCEND_WORK_PATH": "second"}
    config = config_of(
        tmp_path,
        {"dump_path": "/d", "dump_scene": scene},
        environ=environ,
        current_folder="/cwd",
    )
    assert config.dump_path_candidates() == ("/first", "/cwd/second", "/d")
    config = config_of(
        tmp_path, {"dump_scene": scene}, environ={"ASCEND_DUMP_PATH": ""}, current_folder="/cwd"
    )
    assert config.dump_path_candidates() == (str(tmp_path / "extra-info"), "/cwd/extra-info")


@pytest.mark.parametrize("scene", [{"dump_scene": "watcher"}, {}])
def test_other_scenes_do_not(tmp_path: Path, scene: dict[str, str]) -> None:
    config = config_of(
        tmp_path, {"dump_path": "/d", **scene}, environ={"ASCEND_WORK_PATH": "/work"}
    )
    assert config.dump_path_candidates() == ("/d",)


def test_the_process_environment_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_WORK_PATH", "/work")
    monkeypatch.chdir(tmp_path)
    config = config_of(tmp_path, {"dump_scene": "lite_exception"})
    assert config.dump_path_candidates() == ("/work", str(tmp_path / "extra-info"))


GENEROUS = """
// what CANN refuses
{
  "dump": {
    "dump_path": "out", /* and
    this */
    "dump_debug": "on",
  },
}
"""


def test_comments_and_trailing_commas_are_read_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    path.write_text(GENEROUS)
    (tmp_path / "out").mkdir()
    config = load_config(path)
    assert not config.strict
    assert config.dump_debug
    (issue,) = check_config(config)
    assert (issue.severity, issue.key) == ("error", "")
    assert str(issue) == (
        "error: comments, trailing commas and the like are read here, but CANN refuses them: "
        "line 2, column 1: Expecting value"
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"dump": {"dump_path": "out"},}',
        "{'dump': {dump_path: 'out'}}",
        '{"dump": {"dump_path": "out", "dump_mode": NaN}}',
    ],
)
def test_what_else_is_no_strict_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "acl.json"
    path.write_text(text)
    config = load_config(path)
    assert not config.strict
    assert config.dump_path == "out"


@pytest.mark.parametrize(
    "text",
    [
        '{"dump": {"dump_path": "a", "dump_path": "b"}}',
        '{"dump": {"dump_path": "a", dump_path: "b"}}',
    ],
)
def test_a_repeated_key_is_reported_and_the_last_counts(tmp_path: Path, text: str) -> None:
    (tmp_path / "b").mkdir()
    path = tmp_path / "acl.json"
    path.write_text(text)
    config = load_config(path)
    assert config.dump_path == "b"
    assert [(i.severity, i.key) for i in check_config(config) if i.key] == [
        ("warning", "dump.dump_path")
    ]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (
            '{"dump": {"dump_path": "a", "dump_list": [{}, {"layer": ["b"], "layer": ["c"]}]}}',
            ["dump.dump_list[1].layer"],
        ),
        # the first of the two is gone, and nothing tells where it was
        ('{"dump": {"dump_path": "a", "dump_path": "b"}, "dump": {}}', ["dump_path", "dump"]),
        (f'{{"dump": {{"{"k" * 99}": 1, "{"k" * 99}": 2}}}}', [f"dump.{'k' * 59}…"]),
    ],
)
def test_the_path_of_a_repeated_key_is_told(tmp_path: Path, text: str, keys: list[str]) -> None:
    path = tmp_path / "acl.json"
    path.write_text(text)
    assert list(load_config(path).repeated_keys) == keys


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"dump": {"dump_path": "x"}}')
    assert load_config(path).strict


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no JSON, even with comments allowed: "),
        (b"{", "no JSON, even with comments allowed: line 1: Unexpected "),
        (b'// comment\n{"dump":\n}', "no JSON, even with comments allowed: line 3: Unexpected "),
        (b'{"dump": "\x1b[31m" \x1b}', "no JSON, even with comments allowed: line 1: Unexpected "),
        (b"[]", "expected an object, found list"),
        (b"3", "expected an object, found int"),
        (b'{"dump": "\xff"}', " at 0xa: expected UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' * 20_000, "nested too deeply"),
        (b'{"dump": ' + b"9" * 10_000 + b"}", "no JSON, even with comments allowed: "),
        (b" " * ((1 << 20) + 1), "expected an acl.json of at most 1048576 bytes, found more"),
        (b"// x\n" + b" " * (1 << 18), "too large to be read with comments"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "acl.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)
    assert str(raised.value).isprintable()


@given(st.text(max_size=40) | st.text('{}[]:,"/* \n1adump_', max_size=60))
def test_any_text_loads_or_is_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any_acl.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        config = load_config(path)
    except ConfigError:
        return
    # Nothing but an object under `dump` can be without an error.
    refused = any(issue.severity == "error" for issue in check_config(config))
    assert refused or isinstance(config.document["dump"], dict)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"acl\.json: cannot be read: No such file or directory"):
        load_config(tmp_path / "acl.json")


def test_a_folder_and_a_pipe_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError):
        load_config(tmp_path / "pipe")


# --- which file is one --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("acl.json", '{"dump": {}}', True),
        ("my.json", '{"dump": {"dump_path": "x"}}', True),
        ("my.json", '{// c\n "dump": {"dump_path": "x"}}', True),
        ("my.json", "{dump: {}}", True),
        ("acl.json", "not json", True),  # reading it says why
        ("acl.json", "{}", True),
        ("my.json", "not json", False),
        ("my.json", '{"dump": 3}', False),
        ("dump.json", '{"task": "statistics", "dump_data_dir": null, "data": {}}', False),
        ("acl.txt", '{"dump": {}}', False),
    ],
)
def test_an_acl_json_is_told_from_a_dump(
    tmp_path: Path, name: str, content: str, expected: bool
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert is_config(path) is expected


def test_a_dump_json_with_nan_is_not_read_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dump.json"
    path.write_text('{"data": {"Functional.linear.0.forward": {"Max": NaN}}, "dump_data_dir": 1}')

    def refuse(*_: object) -> object:
        raise AssertionError("parsed")

    monkeypatch.setattr(loading_module, "_parse_generously", refuse)
    assert is_config(path) is False


def test_what_is_no_file_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "acl.json").mkdir()
    assert is_config(tmp_path / "acl.json") is False
    assert is_config(tmp_path / "none.json") is False


# --- the folder ---------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    (issue,) = check_config(config_of(tmp_path, {"dump_path": "out"}))
    assert str(issue) == (
        "warning: dump.dump_path: 'out' is no folder on this machine: "
        "CANN needs it to be there when the program starts"
    )
    (tmp_path / "out").mkdir()
    assert check_config(config_of(tmp_path, {"dump_path": "out"})) == []


@pytest.mark.parametrize("missing", [os.R_OK, os.W_OK, os.X_OK])
def test_a_folder_that_cannot_be_read_or_written_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & missing)  # root may do all
    (issue,) = check_config(config_of(tmp_path, {"dump_path": "out"}))
    assert (issue.severity, issue.key) == ("warning", "dump.dump_path")
    assert "cannot be read and written by this user" in issue.message


@pytest.mark.parametrize(
    "dump", [{"dump_path": "1.2.3.4:/nowhere"}, {"dump_path": "x", "dump_scene": "lite_exception"}]
)
def test_other_folders_are_not_looked_at(tmp_path: Path, dump: dict[str, str]) -> None:
    assert check_config(config_of(tmp_path, dump)) == []


# --- presets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["overflow", "model", "single-op", "stats"])
def test_a_preset_is_strict_json_that_cann_accepts(tmp_path: Path, name: str) -> None:
    text = preset(name)
    path = tmp_path / "acl.json"
    path.write_text(text)
    (tmp_path / "dump_data").mkdir()
    config = load_config(path)
    assert config.strict
    assert check_config(config) == []
    assert config.dump_path == DEFAULT_DUMP_PATH == "dump_data"
    assert config.has_inputs
    assert text.endswith("}\n")


def test_presets_turn_on_what_they_are_called(tmp_path: Path) -> None:
    dumps = {name: json.loads(preset(name, str(tmp_path)))["dump"] for name in PRESETS}
    assert set(dumps) == {"overflow", "model", "single-op", "stats"}
    assert {dump.pop("dump_path") for dump in dumps.values()} == {str(tmp_path)}
    assert dumps["overflow"] == {"dump_debug": "on"}
    assert dumps["model"]["dump_op_switch"] == "off"
    assert dumps["single-op"]["dump_op_switch"] == "on"
    assert {name for name, dump in dumps.items() if dump.get("dump_data") == "stats"} == {"stats"}


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("modle", "out", "'modle': choose among overflow, model, single-op, stats"),
        ("model", "", "CANN would refuse this acl.json: dump.dump_path: empty"),
        ("model", "x" * 513, "expected at most 512 characters, found 513"),
        ("model", "\udcff", "is not UTF-8 text"),
    ],
)
def test_a_preset_that_cann_would_refuse_is_not_made(name: str, path: str, message: str) -> None:
    with pytest.raises(OptionsError) as raised:
        preset(name, path)
    assert message in str(raised.value)
