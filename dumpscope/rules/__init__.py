"""Expected values as data: which non-finite values belong where they are.

The built-in rules lie beside this module in the same TOML form as a user's own. A rule answers
for one tensor; whether its `condition` holds is for the verdicts to say, which know the inputs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

from dumpscope.errors import ConfigError
from dumpscope.model import OpRecord, TensorSummary
from dumpscope.records import record

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["KINDS", "Condition", "Rule", "RuleSet", "is_one_sided", "load_rules"]

Condition = Literal["", "clean_inputs", "same_positions", "producer_absent", "receive_buffer"]
KINDS = ("nan", "posinf", "neginf", "saturated")
_CONDITIONS: tuple[Condition, ...] = (
    "", "clean_inputs", "same_positions", "producer_absent", "receive_buffer",
)  # fmt: skip
_FIELDS = {
    "name", "op_type", "op_name", "slot", "kind", "min_share", "one_sided", "condition",
    "reason", "reason_zh",
}  # fmt: skip
_MOST_BYTES = 4 << 20
_LIMITS = _FIELDS - {"name", "reason", "reason_zh"}


@record(frozen=True, slots=True)
class Rule:
    """One entry of a rules file. Empty globs match everything."""

    name: str
    op_type: tuple[str, ...] = ()
    op_name: tuple[str, ...] = ()
    slot: tuple[str, ...] = ()
    kind: tuple[str, ...] = KINDS
    min_share: float = 0.0
    one_sided: bool = False
    condition: Condition = ""
    reason: str = ""
    reason_zh: str = ""
    built_in: bool = False

    def speaks_of(self, op_type: str) -> bool:
        """Whether the rule is about operators of this type."""
        return _matches(self.op_type, op_type) or _matches(self.op_type, _last(op_type))

    def covers(self, op: OpRecord, tensor: TensorSummary) -> bool:
        """Whether every bad value of `tensor` is of a kind that this rule allows there.

        `op` is of a type that it speaks of.
        """
        return (
            self._allows(tensor)
            and _matches(self.slot, f"{tensor.role}.{tensor.index}")
            and _matches(self.op_name, op.op_name)
        )

    def _allows(self, tensor: TensorSummary) -> bool:
        stats = tensor.stats
        kind = self.kind
        if (
            (stats.nan and "nan" not in kind)
            or (stats.posinf and "posinf" not in kind)
            or (stats.neginf and "neginf" not in kind)
            or (not stats.nonfinite and stats.saturated and "saturated" not in kind)
        ):
            return False
        # A mask constant to which scores were added may have left the type's range here and there.
        mixed = self.condition == "same_positions"
        if self.one_sided and not is_one_sided(tensor, mixed=mixed):
            return False
        if self.min_share > 0:
            if not stats.count:
                return False
            bad = stats.nonfinite or stats.saturated
            return bad >= self.min_share * stats.count
        return True


def is_one_sided(tensor: TensorSummary, *, mixed: bool = False) -> bool:
    """Whether the bad values are one negative constant: all -Inf, or all the dtype's minimum.

    `mixed` allows both in one tensor.
    """
    stats = tensor.stats
    if stats.nan or stats.posinf or stats.saturated != stats.saturated_negative:
        return False
    if stats.neginf:
        return mixed or stats.saturated == 0
    return stats.saturated > 0


class RuleSet:
    """The rules in the order in which they are asked: the user's first, then the built-in ones."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._of: dict[tuple[str, tuple[Condition, ...]], tuple[Rule, ...]] = {}

    def speaks_of_masks(self, op_type: str) -> bool:
        """Whether a rule allows one-sided constants in outputs of operators of this type."""
        return any(r.one_sided for r in self._of_type(op_type, ("clean_inputs", "same_positions")))

    def covering(
        self, op: OpRecord, tensor: TensorSummary, conditions: tuple[Condition, ...] = _CONDITIONS
    ) -> list[Rule]:
        """The rules that cover `tensor` under one of these conditions, in order."""
        return [r for r in self._of_type(op.op_type, conditions) if r.covers(op, tensor)]

    def _of_type(self, op_type: str, conditions: tuple[Condition, ...]) -> tuple[Rule, ...]:
        """The rules about operators of a type, remembered: types are few."""
        key = (op_type, conditions)
        rules = self._of.get(key)
        if rules is None:
            rules = self._of[key] = tuple(
                rule
                for rule in self.rules
                if rule.condition in conditions and rule.speaks_of(op_type)
            )
        return rules


def _last(op_type: str) -> str:
    return op_type.rpartition(".")[2]


def _matches(globs: Sequence[str], text: str) -> bool:
    return not globs or any(_compiled(glob).match(text) for glob in globs)


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob), re.IGNORECASE)


def load_rules(path: str | None = None) -> RuleSet:
    """Read the built-in rules and, before them, those of the file `path`.

    Raises `ConfigError` when the file cannot be read or an entry is not understood.
    """
    built_in = Path(__file__).with_name("builtin.toml").read_bytes()
    rules = list(_parse(built_in, "builtin.toml", built_in=True))
    if path is not None:
        try:
            with open(path, "rb") as file:
                content = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"{path}: expected rules of at most {_MOST_BYTES} bytes, found more")
        rules = [*_parse(content, path, built_in=False), *rules]
    return RuleSet(tuple(rules))


def _parse(content: bytes, path: str, *, built_in: bool) -> Iterable[Rule]:
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no valid TOML: {error}") from error
    entries = document.pop("rule", [])
    if document:
        raise ConfigError(f"{path}: expected only [[rule]] tables, found {next(iter(document))!r}")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: 'rule' is no list of tables; begin each rule with [[rule]]")
    for number, entry in enumerate(entries, start=1):
        name = entry.get("name")
        named = f" ({name!r})" if isinstance(name, str) and name else ""
        yield _rule_of(entry, f"{path}: rule {number}{named}", number, built_in)


def _rule_of(entry: Mapping[str, Any], where: str, number: int, built_in: bool) -> Rule:
    unknown = sorted(set(entry) - _FIELDS)
    if unknown:
        raise ConfigError(f"{where}: unknown key {unknown[0]!r}; known are {sorted(_FIELDS)}")
    if not set(entry) & _LIMITS:
        raise ConfigError(
            f"{where}: it would cover every bad value there is; name an op_type or an op_name "
            '(op_type = "*" if everything is meant)'
        )
    condition = entry.get("condition", "")
    if condition not in _CONDITIONS:
        raise ConfigError(f"{where}: condition {condition!r} is none of {list(_CONDITIONS[1:])}")
    kinds = _strings(entry, "kind", where) or KINDS
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(f"{where}: kind {kind!r} is none of {list(KINDS)}")
    for slot in _strings(entry, "slot", where):
        if not _is_slot(slot):
            raise ConfigError(
                f"{where}: slot {slot!r} matches no tensor; slots are written input.N and "
                "output.N, as in 'output.0' or 'input.*'"
            )
    share = entry.get("min_share", 0.0)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ConfigError(f"{where}: min_share is a number from 0 to 1, found {share!r}")
    one_sided = entry.get("one_sided", False)
    if not isinstance(one_sided, bool):
        raise ConfigError(f"{where}: one_sided is true or false, found {one_sided!r}")
    texts = {key: entry.get(key, "") for key in ("name", "reason", "reason_zh")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise ConfigError(f"{where}: {key} is a string, found {text!r}")
    return Rule(
        name=texts["name"] or f"rule_{number}",
        op_type=_strings(entry, "op_type", where),
        op_name=_strings(entry, "op_name", where),
        slot=_strings(entry, "slot", where),
        kind=kinds,
        min_share=float(share),
        one_sided=one_sided,
        condition=cast("Condition", condition),
        reason=texts["reason"],
        reason_zh=texts["reason_zh"] or texts["reason"],
        built_in=built_in,
    )


def _strings(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """A key that is one string or a list of strings."""
    value = entry.get(key, ())
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{where}: {key} is a string or a list of strings, found {value!r}")
    if key in entry and not all(value or [""]):
        raise ConfigError(f"{where}: {key} is empty; leave it out where everything is meant")
    return tuple(value)


def _is_slot(glob: str) -> bool:
    """Whether a glob can match a slot: some number below 1000, or one that it spells out."""
    numbers = {*map(str, range(1000)), *re.findall(r"[0-9]+", glob)}
    return any(_matches((glob,), f"{role}.{n}") for role in ("input", "output") for n in numbers)
