"""Write the parts of docs/ that list what the code has, or check that they are current.

    python docs/generate.py            write them
    python docs/generate.py --check    exit 1 where one is stale or a link leads nowhere

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dumpscope.cli.main import COMMANDS, cli
from dumpscope.model import SEVERITY_OF, Verdict
from dumpscope.plugins import load_readers
from dumpscope.reporters.tables import TABLES
from dumpscope.rules import load_rules
from dumpscope.words.labels import label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PART = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
OWN_PACKAGE = "dumpscope"

WHEN = {
    Verdict.ORIGIN: "an output is non-finite, and every input was checked and is finite",
    Verdict.STATUS_ORIGIN: "the hardware flagged it, its inputs are finite, and its outputs show "
    "nothing or were not dumped",
    Verdict.SATURATED_ORIGIN: "an output reaches the limit of its data type, no input does, and "
    "it does not look like a mask",
    Verdict.BAD_INPUT: "an input is non-finite that nothing in the dump can have produced: the "
    "trouble is older than the dump",
    Verdict.RECEIVED: "the bad value came in through a communication operator from another rank",
    Verdict.HANDOFF: "an input is non-finite where its producer's output was clean: overwritten "
    "memory, or an operator that was not dumped",
    Verdict.UNKNOWN_INPUTS: "an output is non-finite, the inputs were not dumped or are "
    "unchecked, and no producer was found",
    Verdict.PROPAGATED: "an output is non-finite, and so is an input that something earlier "
    "produced",
    Verdict.SWALLOWED: "an input is non-finite and all outputs are finite",
    Verdict.EXPECTED: "non-finite on purpose: masks, uninitialised buffers, what rules name",
}
WHEN_ZH = {
    Verdict.ORIGIN: "某个输出非有限，而每个输入都检查过且为有限值",
    Verdict.STATUS_ORIGIN: "硬件标记了它，其输入均为有限值，输出中没有异常或没有 dump 输出",
    Verdict.SATURATED_ORIGIN: "某个输出达到数据类型的上限，没有输入达到，且看起来不是掩码",
    Verdict.BAD_INPUT: "某个输入非有限，而 dump 中没有算子可能产生它：问题早于这份 dump",
    Verdict.RECEIVED: "异常值经由通信算子来自另一个 rank",
    Verdict.HANDOFF: "某个输入非有限，其生产者的输出却正常：内存被覆盖，或者中间有算子没有被 dump",
    Verdict.UNKNOWN_INPUTS: "某个输出非有限，输入没有 dump 或未检查，也没有找到生产者",
    Verdict.PROPAGATED: "某个输出非有限，某个输入也是，且由更早的算子产生",
    Verdict.SWALLOWED: "某个输入非有限，而所有输出均为有限值",
    Verdict.EXPECTED: "有意的非有限值：掩码、未初始化的缓冲区、规则指明的值",
}
CONDITIONS_ZH = {
    "clean_inputs": "输入正常",
    "same_positions": "位置相同",
    "producer_absent": "没有生产者",
    "receive_buffer": "接收缓冲区",
}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def list_verdicts() -> str:
    rows = [(f"`{v}`", SEVERITY_OF[v] or "–", WHEN[v]) for v in Verdict]
    return table(("verdict", "severity", "when"), rows)


def list_verdicts_zh() -> str:
    rows = [(f"`{v}` {label(v, 'zh')}", SEVERITY_OF[v] or "–", WHEN_ZH[v]) for v in Verdict]
    return table(("判定", "严重级别", "条件"), rows)


def list_rules() -> str:
    rows = []
    for rule in load_rules().rules:
        needs = [rule.condition.replace("_", " ")] if rule.condition else []
        if rule.one_sided:
            needs.append("one-sided")
        if rule.min_share:
            needs.append(f"at least {rule.min_share:.0%}")
        kinds = ", ".join(rule.kind)
        rows.append((f"`{rule.name}`", kinds, ", ".join(needs) or "–", rule.reason))
    return table(("built-in rule", "values", "needs", "why"), rows)


def list_rules_zh() -> str:
    rows = []
    for rule in load_rules().rules:
        needs = [CONDITIONS_ZH[rule.condition]] if rule.condition else []
        if rule.one_sided:
            needs.append("单侧")
        if rule.min_share:
            needs.append(f"占比不低于 {rule.min_share:.0%}")
        kinds = ", ".join(rule.kind)
        rows.append((f"`{rule.name}`", kinds, "，".join(needs) or "–", rule.reason_zh))
    return table(("内置规则", "值", "要求", "原因"), rows)


def list_readers() -> str:
    registry = load_readers()
    own = {plugin.name for plugin in registry.plugins if plugin.package == OWN_PACKAGE}
    rows = [
        (f"`{reader.name}`", reader.formats, reader.versions)
        for reader in sorted(registry.readers, key=lambda reader: reader.name)
        if reader.name in own
    ]
    return table(("reader", "reads", "of"), rows)


def list_columns() -> str:
    parts = []
    for sheet in TABLES.values():
        rows = [(f"`{column.name}`", column.description()) for column in sheet.columns]
        parts.append(f"### {sheet.name}\n\n" + table(("column", "holds"), rows))
    return "\n".join(parts)


def list_commands() -> str:
    parts: list[str] = []
    context = click.Context(cli, info_name="dumpscope")
    for name, (_, line) in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        parts += describe(command, f"dumpscope {name}", context, fallback=line)
    return "\n".join(parts)


def describe(
    command: click.Command, title: str, parent: click.Context, *, fallback: str = ""
) -> Iterator[str]:
    """Yield the sections of a command and of those below it."""
    context = click.Context(command, info_name=title.rpartition(" ")[2], parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    text = " ".join((command.help or fallback).split("\f")[0].split())
    section = f"## {title}\n\n{text}\n\n```text\n{title} {usage}\n```\n"
    rows = []
    for param in command.params:
        if not isinstance(param, click.Option) or param.hidden:
            continue
        names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
        rows.append((names, value_of(param), param.help or ""))
    if rows:
        section += "\n" + table(("option", "value", "meaning"), rows)
    if command.epilog:
        section += f"\n{' '.join(command.epilog.split())}\n"
    yield section
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from describe(inner, f"{title} {name}", context)


def value_of(option: click.Option) -> str:
    """Name what an option takes, "" for a switch."""
    if option.is_flag:
        return ""
    if option.metavar:
        return f"`{option.metavar}`"
    if isinstance(option.type, click.Choice):
        return " ".join(f"`{choice}`" for choice in option.type.choices)
    return f"`{option.type.name.partition(' ')[0].upper()}`"


def list_rooms() -> str:
    rows = []
    for path in sorted((ROOT / "dumpscope").iterdir()):
        source = path / "__init__.py" if path.is_dir() else path
        if source.suffix != ".py" or not source.is_file() or path.name.startswith("__"):
            continue
        text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
        sentence = " ".join(text.partition("\n\n")[0].split())
        rows.append((f"`{path.stem}{'/' if path.is_dir() else ''}`", sentence))
    return table(("room", "job"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "verdicts": list_verdicts,
    "verdicts-zh": list_verdicts_zh,
    "rules": list_rules,
    "rules-zh": list_rules_zh,
    "readers": list_readers,
    "columns": list_columns,
    "commands": list_commands,
    "rooms": list_rooms,
}


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def renewed(text: str) -> str:
    """Return a page with its generated parts written anew."""
    return PART.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}{match[3]}", text)


def anchor(heading: str) -> str:
    """Return the name under which a heading can be linked to."""
    plain = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def broken_links(page: Path) -> Iterator[str]:
    """Yield a line for each link of a page that leads nowhere in this tree."""
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: link to {target}: there is no such file"
        elif fragment and file.suffix == ".md":
            text = FENCE.sub("", file.read_text(encoding="utf-8"))
            if fragment not in {anchor(heading) for heading in HEADING.findall(text)}:
                yield f"{page.relative_to(ROOT)}: link to {target}: there is no such heading"


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__)
        return 2
    faults: list[str] = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        current = renewed(text)
        if current == text:
            continue
        if check:
            faults.append(f"{page.relative_to(ROOT)}: generated parts are stale: run `make docs`")
        else:
            page.write_text(current, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
    for page in pages():
        faults += broken_links(page)
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
