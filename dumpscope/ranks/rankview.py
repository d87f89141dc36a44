"""What the options of a scan and its dump say of ranks: coordinates, and notes on what is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from dumpscope.errors import OptionsError
from dumpscope.model import Reason, Scan, ScanOptions
from dumpscope.ranks.parallelism import (
    DIMENSIONS,
    Topology,
    format_ranks,
    plan_topology,
    read_order,
)
from dumpscope.ranks.presence import Presence

__all__ = ["check_rank_options", "find_topology", "refuse_wrong_sizes"]


def check_rank_options(options: ScanOptions) -> None:
    """Refuse what cannot be right, whatever the dump holds: before hours of reading.

    Raises
    ------
    ConfigError
        The rank map cannot be read.
    OptionsError
        The sizes or their order have no meaning, or there is a rank map too.
    """
    _topology_of(options, None)


def find_topology(options: ScanOptions, presence: Presence) -> tuple[Topology | None, list[Reason]]:
    """Return the coordinates of the ranks of a dump, and what is to be said of them.

    Where the dump holds a rank beyond the sizes there are none (`refuse_wrong_sizes`). Raises
    `ConfigError` and `OptionsError` as `check_rank_options` does.
    """
    if not _is_asked(options):
        return None, []
    numbers = [n for found in presence.numbers.values() for n in found.values()]
    if any(len(found) > 1 for found in presence.numbers.values()):
        # Device ids that start at 0 on every host say nothing of ranks.
        _topology_of(options, None)
        return None, [Reason("ranks_not_global")]
    ranks = frozenset().union(*numbers)
    topology = _topology_of(options, max(ranks, default=None))
    if topology is None:
        return None, []
    notes = []
    unknown = ranks - topology.ranks
    if unknown and topology.order is not None:
        sizes = " x ".join(f"{name} {size}" for name, size in _sizes(options).items())
        world, highest = len(topology.ranks), max(ranks)
        return None, [
            Reason("ranks_beyond_sizes", {"sizes": sizes, "world": world, "highest": highest})
        ]
    if unknown:
        notes.append(
            Reason("ranks_not_mapped", {"ranks": format_ranks(unknown), "count": len(unknown)})
        )
    if topology.assumed:
        notes.append(
            Reason("ranks_assumed_order", {"order": topology.order, "count": len(topology.ranks)})
        )
    return topology, notes


def refuse_wrong_sizes(scan: Scan) -> None:
    """Raise `OptionsError` where the dump holds more ranks than the sizes of the job make.

    The answer is right but for what it could say of groups; whoever gave the sizes just now is
    better told at once.
    """
    for note in scan.notes:
        if note.code == "ranks_beyond_sizes":
            said = note.parameters
            raise OptionsError(
                f"{said['sizes']} = {said['world']} ranks, but the dump holds rank "
                f"{said['highest']}: correct --tp, --pp, --dp, --cp; what was read is stored, "
                "dumpscope report with other sizes goes on from there"
            )


def _is_asked(options: ScanOptions) -> bool:
    return options.rank_map is not None or options.order is not None or bool(_sizes(options))


def _sizes(options: ScanOptions) -> dict[str, int]:
    sizes = ((name, getattr(options, name)) for name in DIMENSIONS)
    return {name: size for name, size in sizes if size is not None}


def _topology_of(options: ScanOptions, highest_rank: int | None) -> Topology | None:
    sizes = _sizes(options)
    if options.rank_map is not None:
        given = [f"--{name}" for name in sizes] + ["--order"] * (options.order is not None)
        if given:
            raise OptionsError(f"--rank-map says where every rank is: leave {_join(given)} out")
        from dumpscope.ranks.rankmap import load_rank_map

        return load_rank_map(options.rank_map)
    if options.order is not None:
        read_order(options.order)
        if not sizes:
            raise OptionsError("--order: give the sizes of the dimensions too (--tp, --pp, --dp)")
    if not sizes:
        return None
    return plan_topology(sizes, order=options.order, highest_rank=highest_rank)


def _join(words: Iterable[str]) -> str:
    return ", ".join(words)
