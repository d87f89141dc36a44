"""`dumpscope checks`: what is looked for, and which values are expected."""

from __future__ import annotations

import click

from dumpscope.cli.talking import add_language_option, pick, say

__all__ = ["checks"]


@click.command(epilog="Example: dumpscope checks --rules my_rules.toml")
@click.option("--rules", "rules_file", metavar="FILE", help="Show these rules as well.")
@add_language_option
def checks(rules_file: str | None, lang: str | None) -> None:
    """List the verdicts in ranking order and the rules for expected values."""
    from dumpscope.causality.ranking import FAIL_ORDER
    from dumpscope.model import SEVERITY_OF
    from dumpscope.rules import load_rules
    from dumpscope.safetext import make_printable
    from dumpscope.words import describe_verdict

    language = pick(lang)
    rules = load_rules(rules_file)
    click.echo(say("checks_verdicts", language))
    for verdict in FAIL_ORDER:
        click.echo(
            f"{verdict.value:18} {SEVERITY_OF[verdict]:8} {describe_verdict(verdict, language)}"
        )
    click.echo(say("checks_expected", language))
    for rule in rules.rules:
        why = rule.reason_zh if language == "zh" else rule.reason
        key = "checks_built_in" if rule.built_in else "checks_own"
        click.echo(say(key, language, name=rule.name, why=why, file=rules_file))
        click.echo(make_printable(f"    op_type: {', '.join(rule.op_type) or '*'}"))
        if rule.op_name:
            click.echo(make_printable(f"    op_name: {', '.join(rule.op_name)}"))
        limits = [f"kind: {', '.join(rule.kind)}"]
        if rule.slot:
            limits.append(f"slot: {', '.join(rule.slot)}")
        if rule.one_sided:
            limits.append("one-sided")
        if rule.min_share:
            limits.append(f"share at least {rule.min_share:g}")
        if rule.condition:
            limits.append(f"condition: {rule.condition}")
        click.echo(make_printable("    " + "; ".join(limits)))
