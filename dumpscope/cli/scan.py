"""`dumpscope scan`: read a dump and say which operators went wrong first."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dumpscope.cli.progress import ScanProgress
from dumpscope.cli.rank_options import add_rank_options, make_absolute
from dumpscope.cli.stored import options_of, remember_options
from dumpscope.cli.talking import add_language_option, pick, tell

if TYPE_CHECKING:
    from dumpscope.aclconfig import AclConfig
    from dumpscope.model import Scan, ScanOptions

__all__ = ["scan"]


@click.command(
    epilog="Example: dumpscope scan ./dump_data --fail-on error; exit status 0 clean, "
    "1 offenders found, 2 wrong usage, 3 incomplete."
)
@click.argument("paths", nargs=-1, type=click.Path())
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "json", "github"]),
    default="table",
    help="What goes to stdout; github: annotations, and the summary of the job.",
)
@click.option("--store", "store_file", metavar="FILE", help="Where results are kept.")
@click.option("--jobs", type=click.IntRange(min=1), help="Workers (default: one per core).")
@click.option(
    "--executor",
    type=click.Choice(["local", "dask"]),
    help="Who reads the files: this machine, or the workers of a dask cluster.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Scheduler of the cluster, or its file (default: a cluster on this machine).",
)
@click.option(
    "--stats",
    type=click.Choice(["screen", "full"]),
    default="screen",
    help="full: mean, std, RMS, L2, zeros, subnormals of every tensor.",
)
@click.option(
    "--fail-on",
    default="warning",
    metavar="LEVEL",
    help="info, warning, error, never, or a verdict: what gives exit status 1.",
)
@click.option(
    "--max-unreadable",
    default="0",
    metavar="N|N%|all",
    help="How much may be unreadable or unchecked before the status is 3.",
)
@click.option(
    "--expect",
    type=click.Choice(["overflow", "model"]),
    help="What an empty folder means: no overflow (clean), or a failed dump.",
)
@click.option(
    "--baseline",
    metavar="FILE",
    callback=make_absolute,
    help="Known findings: listed, not counted.",
)
@click.option(
    "--rules",
    "rules_file",
    metavar="FILE",
    callback=make_absolute,
    help="TOML rules for expected values.",
)
@click.option("--reader", metavar="NAME", help="Read every file with this reader.")
@click.option("--step", "steps", type=int, multiple=True, help="Only this step (repeatable).")
@click.option("--rank", "ranks", type=int, multiple=True, help="Only this rank or device.")
@click.option("--op", "op_globs", metavar="GLOB", multiple=True, help="Only operators named so.")
@click.option("--run", default="all", metavar="latest|all|TIME", help="Only this run.")
@add_rank_options
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help="Findings to print (table 20, JSON 1000, 0 = all).",
)
@add_language_option
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with the scan that was stopped last: same paths, same options.",
)
@click.option("--progress/--no-progress", default=None, help="Force the progress bar on or off.")
def scan(
    paths: tuple[str, ...],
    output: str,
    store_file: str | None,
    limit: int | None,
    lang: str | None,
    resume: bool,
    progress: bool | None,
    **options: Any,
) -> None:
    """Scan dump folders, single dump files, or the acl.json itself.

    A path may be a URL such as s3://bucket/dump (extra remote). Without PATHS: the dump_path of
    ./acl.json, else the current folder. What an earlier scan has read and what did not change
    since is not read again, also when that scan was stopped.
    """
    from dumpscope.model import ScanOptions
    from dumpscope.outcome import failing_verdicts, parse_tolerance
    from dumpscope.ranks.rankview import check_rank_options, refuse_wrong_sizes

    asked = ScanOptions(**options)
    # Before hours of reading, not after them.
    failing_verdicts(asked.fail_on)
    parse_tolerance(asked.max_unreadable)
    check_rank_options(asked)
    if asked.scheduler is not None and asked.executor != "dask":
        raise click.UsageError("--scheduler: only the executor dask has one; add --executor dask")
    if resume:
        places, asked, facts = _find_stopped(paths, asked, store_file)
        result = _run_scan(places, asked, facts, None, store_file, progress, lang)
    else:
        places, config = _resolve_paths(paths)
        facts, missing = (None, None) if config is None else (config.facts(), config.dump_path)
        result = _run_scan(places, asked, facts, missing, store_file, progress, lang)
    refuse_wrong_sizes(result)
    _print_result(remember_options(result, store_file), output, limit, lang)
    raise click.exceptions.Exit(result.exit_status)


def _run_scan(
    places: Sequence[str],
    options: ScanOptions,
    config: Mapping[str, object] | None,
    missing: str | None,
    store_file: str | None,
    progress: bool | None,
    lang: str | None,
) -> Scan:
    from dumpscope.scanning import scan as run_scan
    from dumpscope.store import Store, default_store_path

    path, said = default_store_path(places, store=store_file)
    if said:
        tell(said.code, lang, **said.parameters)
    with Store.open(path) as store, ScanProgress(progress) as bar:
        try:
            return run_scan(
                places,
                options,
                store=store,
                progress=bar.show,
                config=config,
                missing=missing,
                history=False,
            )
        except KeyboardInterrupt:
            bar.close()
            newest = store.latest()
            if newest is None or newest.state == "finished":
                tell("interrupted_at_once", lang)
            else:
                command = shlex.join(["dumpscope", "scan", "--resume", *options_of(store_file)])
                tell("interrupted_scan", lang, command=command, path=path)
            raise


def _print_result(result: Scan, output: str, limit: int | None, lang: str | None) -> None:
    if output == "json":
        from dumpscope.reporters.document import DocumentReporter

        # Bytes, because JSON is UTF-8 whatever the terminal's encoding is.
        sys.stdout.flush()
        DocumentReporter().write(result, sys.stdout.buffer, limit=limit, lang=lang or "en")
        sys.stdout.buffer.flush()
    elif output == "github":
        from dumpscope.reporters.github import GithubReporter

        lang = pick(lang)
        sys.stdout.flush()
        GithubReporter().write(result, sys.stdout.buffer, limit=limit, lang=lang)
        sys.stdout.buffer.flush()
    else:
        from dumpscope.reporters.terminal import print_scan

        print_scan(result, limit=limit, lang=pick(lang))


def _find_stopped(
    paths: Sequence[str], options: ScanOptions, store_file: str | None
) -> tuple[list[str], ScanOptions, Mapping[str, object] | None]:
    """What the newest scan that did not finish was asked for; of PATHS, where some are given."""
    from dumpscope.store import Store, existing_store_path
    from dumpscope.walk import walk

    paths = [_without_secrets(path) for path in paths]
    path = existing_store_path(store=store_file)
    with Store.open(path, create=False, write=False) as store:
        if paths:
            walker = walk(paths)
            walker.close()
            stopped = store.find_unfinished(walker.root)
        else:
            newest = store.latest()
            stopped = None if newest is None or newest.state == "finished" else newest
    if stopped is None:
        raise click.UsageError(f"--resume: no scan of {path} was stopped; run it without --resume")
    if paths:
        return paths, options, stopped.config
    kept = stopped.options
    if options.executor is not None:  # who reads is no part of what the scan is about
        kept = replace(kept, executor=options.executor, scheduler=options.scheduler)
    return list(stopped.sources), kept, stopped.config


def _resolve_paths(
    paths: Sequence[str],
) -> tuple[list[str], AclConfig | None]:
    """Replace an acl.json by the dump path that it names, and keep what it asked for."""
    if not paths:
        here = _load_if_config("acl.json")
        if here is None or not here.dump_folders:
            return ["."], here  # acl.json also configures what is no dump
        paths = ["acl.json"]
    places: list[str] = []
    config: AclConfig | None = None
    for path in map(_without_secrets, paths):
        loaded = _load_if_config(path)
        if loaded is None:
            places.append(path)
            continue
        if config is not None:
            raise click.UsageError("expected one acl.json, found several")
        config = loaded
        folder = loaded.find_dump_folder()
        if folder is not None:
            places.append(folder)
        elif not loaded.dump_folders:
            raise click.UsageError(f"{path}: names no dump_path; name the dump folder itself")
    return places, config


def _without_secrets(path: str) -> str:
    """Keep the password of a URL for the connection only: the rest is told the URL without it."""
    from dumpscope.remote.mounts import mount
    from dumpscope.remote.urls import is_url, local_path

    path = local_path(path)
    return mount(path).url if is_url(path) else path


def _load_if_config(path: str) -> AclConfig | None:
    from dumpscope.remote.urls import is_url

    if is_url(path) and path.endswith("/acl.json"):
        raise click.UsageError(
            f"{path}: an acl.json is only read from this machine; copy it here, or name the URL of "
            "the dump folder itself"
        )
    if not path.endswith(".json") or not os.path.isfile(path):
        return None
    from dumpscope.aclconfig import is_config, load_config

    return load_config(path) if is_config(path) else None
