"""What `config check` says of an acl.json, in Simplified Chinese.

The English sentences stand beside the rules that say them (`aclconfig`); here each of them has its
translation, with the same `{name}`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dumpscope.aclconfig import Issue

__all__ = ["CHINESE_ISSUES", "render_issue"]

CHINESE_ISSUES: Mapping[str, str] = MappingProxyType(
    {
        # the file
        "comments, trailing commas and the like are read here, but CANN refuses them: {fault}": (
            "此处可以读取注释、多余的逗号等，但 CANN 会拒绝：{fault}"
        ),
        "is there twice in one object; the last one counts": "在同一对象中出现两次；以最后一个为准",
        "unknown key, CANN ignores it; did you mean {near}?": (
            "未知的键，CANN 会忽略；是否应为 {near}？"
        ),
        "unknown key, CANN ignores it; known keys: {known}": (
            "未知的键，CANN 会忽略；已知的键：{known}"
        ),
        "missing: expected an object with the dump's settings": "缺失：应为包含转储设置的对象",
        # types and values
        "expected a string, found {found}": "应为字符串，实为{found}",
        "expected an object, found {found}": "应为对象，实为{found}",
        "expected an array of strings, found {found}": "应为字符串数组，实为{found}",
        "expected an array of objects, found {found}": "应为对象数组，实为{found}",
        "expected one of {allowed}, found {found}": "应为 {allowed} 之一，实为{found}",
        "expected at most {most} entries, found {found}": "最多允许 {most} 项，实有 {found} 项",
        "expected at most {most} characters, found {found}": (
            "最多允许 {most} 个字符，实有 {found} 个"
        ),
        "{value} is not allowed, only {allowed}": "不允许 {value}，只允许 {allowed}",
        "{value} is not allowed, only {allowed}; did you mean {near}?": (
            "不允许 {value}，只允许 {allowed}；是否应为 {near}？"
        ),
        "{value} is not allowed, only {allowed} joined by commas without spaces": (
            "不允许 {value}，只允许 {allowed}，以逗号连接，不加空格"
        ),
        "empty, so the entry has no effect": "为空，因此该项不起作用",
        # where to, and what
        "missing: expected the folder to dump into": "缺失：应为转储目录",
        "empty: expected the folder to dump into": "为空：应为转储目录",
        "expected a folder behind the address, found none": "地址之后应有目录，但没有",
        "{path} is no folder on this machine: CANN needs it to be there when the program starts": (
            "{path} 不是本机上的目录：CANN 要求程序启动时它已存在"
        ),
        "{path} cannot be read and written by this user, which CANN needs": (
            "当前用户不能读写 {path}，而 CANN 需要读写它"
        ),
        "expected at most {most} intervals 'n' or 'n-m' with n <= m, joined by '|', found {count} "
        "of them": "最多允许 {most} 个区间，形如 'n' 或 'n-m'（n <= m），以 '|' 连接，"
        "实有 {count} 个",
        "expected at most {most} intervals 'n' or 'n-m' with n <= m, joined by '|', found {text}": (
            "应为至多 {most} 个区间，形如 'n' 或 'n-m'（n <= m），以 '|' 连接，实为 {text}"
        ),
        # what goes together
        "the exception scene {scene} excludes {name} 'on': turn one of them off": (
            "异常场景 {scene} 与 {name} 为 'on' 互斥：请关闭其中一个"
        ),
        "the scene 'watcher' excludes {name} 'on': turn one of them off": (
            "场景 'watcher' 与 {name} 为 'on' 互斥：请关闭其中一个"
        ),
        "overflow detection excludes dump_op_switch 'on': turn one of them off": (
            "溢出检测与 dump_op_switch 为 'on' 互斥：请关闭其中一个"
        ),
        "the scene 'watcher' allows only 'output', not {mode}": (
            "场景 'watcher' 只允许 'output'，不允许 {mode}"
        ),
        "the scene 'watcher' needs the nodes to watch": "场景 'watcher' 需要指定要观察的节点",
        "not allowed with the scene 'watcher'": "场景 'watcher' 中不允许",
        "no watcher_nodes, so nothing is watched": "没有 watcher_nodes，因此不会观察任何节点",
        "allowed only with dump_scene 'watcher'": "只在 dump_scene 为 'watcher' 时允许",
        "allowed only with dump_level 'op', not {level}": (
            "只在 dump_level 为 'op' 时允许，此处为 {level}"
        ),
        "allowed only with dump_data 'stats'": "只在 dump_data 为 'stats' 时允许",
        "empty: choose among {allowed}": "为空：请从 {allowed} 中选择",
        "empty: name a model or leave the key out": "为空：请写出模型名，或去掉该键",
        "empty: name operators or leave the key out": "为空：请写出算子名，或去掉该键",
        "{value} is there twice": "{value} 出现两次",
        "needs a model_name beside it": "需要同时给出 model_name",
        "missing: expected an operator": "缺失：应为算子名",
    }
)

_SEVERITIES = {"error": "错误", "warning": "警告"}
# What `kind_of` calls a JSON value.
_KINDS = {
    "null": " null",
    "true": " true",
    "false": " false",
    "a number": "数字",
    "an array": "数组",
    "an object": "对象",
}
_STRING = "the string "


def render_issue(issue: Issue, lang: str = "en") -> str:
    """Return one line: "error: dump.dump_path: missing: expected the folder to dump into"."""
    if not lang.startswith("zh"):
        return str(issue)
    template = CHINESE_ISSUES.get(issue.template)
    message = issue.message
    if template is not None:
        said = {name: _name_kind(name, text) for name, text in issue.parameters.items()}
        message = template.format(**said)
    where = f"{issue.key}：" if issue.key else ""
    return f"{_SEVERITIES[issue.severity]}：{where}{message}"


def _name_kind(name: str, text: str) -> str:
    if name == "level":
        return _KINDS.get(text, text).strip()
    if name != "found":
        return text
    if text.startswith(_STRING):
        return f"字符串 {text.removeprefix(_STRING)}"
    return _KINDS.get(text, text)
