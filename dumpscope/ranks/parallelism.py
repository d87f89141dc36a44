"""Ranks and their coordinates in a parallel training job: tensor, pipeline, data and so on.

===========  ==================================================
dimension    ranks that differ only in it
===========  ==================================================
tp           hold parts of the same tensors
cp           hold parts of the same sequence
ep           hold different experts
dp           train the same weights on different data
pp           hold different layers (stages)
===========  ==================================================

Where only the sizes are known, ranks are numbered as Megatron does (`RankGenerator`): the first
dimension of the order varies fastest. Experts have an arrangement of their own there, with the
order's tp, ep and pp, and the rest of the ranks as copies; so ep adds no ranks, it divides cp x dp.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from math import gcd, prod

from dumpscope.errors import OptionsError
from dumpscope.records import record

__all__ = [
    "DEFAULT_ORDER",
    "DIMENSIONS",
    "Partition",
    "Topology",
    "format_ranks",
    "plan_topology",
    "read_order",
]

DIMENSIONS = ("tp", "cp", "ep", "dp", "pp")
DEFAULT_ORDER = "tp-cp-ep-dp-pp"
"""Megatron's order of dimensions, the fastest first."""

_MOST_RANKS = 1 << 17


@record(frozen=True, slots=True)
class Partition:
    """The groups of ranks that differ only in `dimensions`; every rank is in one of them."""

    dimensions: tuple[str, ...]
    groups: tuple[frozenset[int], ...]

    @property
    def size(self) -> int:
        """Number of ranks in the largest group."""
        return max(map(len, self.groups))


@record(frozen=True, slots=False)
class Topology:
    """Coordinates of every rank of a job.

    Attributes
    ----------
    coordinates
        Rank -> dimension -> number. Every rank has the same dimensions.
    order
        The order of dimensions that the coordinates were computed with, `None` when they were
        given rank by rank.
    assumed
        Whether nobody named that order.
    """

    coordinates: Mapping[int, Mapping[str, int]]
    order: str | None = None
    assumed: bool = False

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """Dimensions with more than one value, the usual order."""
        values: dict[str, set[int]] = defaultdict(set)
        for place in self.coordinates.values():
            for name, number in place.items():
                values[name].add(number)
        return tuple(name for name in DIMENSIONS if len(values[name]) > 1)

    @cached_property
    def ranks(self) -> frozenset[int]:
        """All ranks of the job, whether the dump holds them or not."""
        return frozenset(self.coordinates)

    def place_of(self, rank: int | None) -> Mapping[str, int]:
        """Coordinates of a rank, empty when the job has no such rank."""
        return {} if rank is None else self.coordinates.get(rank, {})

    def partition(self, dimensions: Iterable[str]) -> Partition:
        """Put ranks together that differ only in these dimensions.

        Experts are laid over cp and dp, so ep goes along with those; with ep among `dimensions`
        the groups are those that exchange tokens, one rank of each expert.
        """
        varying = set(dimensions)
        fixed = [d for d in ("tp", "cp", "dp", "pp") if d not in varying]
        if "ep" in varying:
            fixed = [d for d in ("tp", "pp") if d not in varying]
        groups: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for rank, place in self.coordinates.items():
            key = tuple(place.get(d, 0) for d in fixed)
            groups[(*key, self._copies[rank]) if "ep" in varying else key].add(rank)
        return Partition(
            tuple(d for d in DIMENSIONS if d in varying),
            tuple(frozenset(groups[key]) for key in sorted(groups)),
        )

    @cached_property
    def _copies(self) -> dict[int, int]:
        """Rank -> which copy of its experts it holds, among the ranks of its tp and pp."""
        counted: Counter[tuple[int, ...]] = Counter()
        copies = {}
        for rank in sorted(self.coordinates):
            place = self.coordinates[rank]
            key = tuple(place.get(d, 0) for d in ("tp", "pp", "ep"))
            copies[rank] = counted[key]
            counted[key] += 1
        return copies

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """All ways to group the ranks by dimensions, without equal ones, small groups first."""
        dense = [d for d in self.dimensions if d != "ep"]
        chosen = [c for count in range(1, len(dense) + 1) for c in combinations(dense, count)]
        if "ep" in self.dimensions:
            chosen += [("ep",), ("tp", "ep")]
        seen: dict[frozenset[frozenset[int]], Partition] = {}
        for names in chosen:
            found = self.partition(names)
            if found.size > 1:
                seen.setdefault(frozenset(found.groups), found)
        return tuple(sorted(seen.values(), key=lambda p: (p.size, len(p.dimensions))))

    @cached_property
    def _pipelines(self) -> dict[int, frozenset[int]]:
        """Rank -> ranks that differ from it only in pp."""
        groups = self.partition(["pp"]).groups
        return {rank: group for group in groups for rank in group}

    def stage_neighbours(self, rank: int | None) -> frozenset[int]:
        """Ranks of the stages before and after a rank's own, the ends of the pipeline joined."""
        own = self.place_of(rank).get("pp")
        pipeline = () if rank is None else self._pipelines.get(rank, ())
        if own is None or len(pipeline) < 2:
            return frozenset()
        stages = len(pipeline)
        return frozenset(
            other
            for other in pipeline
            if (self.place_of(other)["pp"] - own) % stages in (1, stages - 1)
        )

    def members(self, dimension: str, number: int) -> frozenset[int]:
        """All ranks with one coordinate: `members("tp", 3)`."""
        return frozenset(
            rank for rank, place in self.coordinates.items() if place.get(dimension) == number
        )


def plan_topology(
    sizes: Mapping[str, int | None], *, order: str | None = None, highest_rank: int | None = None
) -> Topology:
    """Compute the coordinates of all ranks from the sizes of the dimensions.

    Parameters
    ----------
    sizes
        Dimension -> number of ranks along it; what is not given is 1, except that dp is then
        what `highest_rank` needs.
    order
        Dimensions with "-" between them, the fastest first (`DEFAULT_ORDER`).
    highest_rank
        The highest rank that the dump holds.

    Raises
    ------
    OptionsError
        The sizes or the order have no meaning.
    """
    names = read_order(order or DEFAULT_ORDER)
    dense = _complete_sizes(sizes, highest_rank)
    ep = sizes.get("ep") or 1
    world = prod(dense.values())
    said = " x ".join(f"{name} {size}" for name, size in dense.items() if size > 1) or "1"
    _check_sizes(world, said, ep, dense)
    for name, size in (*dense.items(), ("ep", ep)):
        if size > 1 and name not in names:
            raise OptionsError(f"--order {order}: does not say where {name} comes")
    expert = {**dense, "cp": 1, "dp": world // (dense["tp"] * ep * dense["pp"]), "ep": ep}
    coordinates = {}
    for rank in range(world):
        place = _decompose(rank, names, {**dense, "ep": 1})
        place["ep"] = _decompose(rank, names, expert)["ep"]
        coordinates[rank] = place
    return Topology(coordinates, "-".join(names), order is None)


def _complete_sizes(sizes: Mapping[str, int | None], highest_rank: int | None) -> dict[str, int]:
    """Return the sizes whose product is the number of ranks."""
    for name, size in sizes.items():
        if size is not None and not 1 <= size <= _MOST_RANKS:
            raise OptionsError(f"--{name} {size}: expected a number from 1 to {_MOST_RANKS}")
    tp, cp, pp, ep = (sizes.get(name) or 1 for name in ("tp", "cp", "pp", "ep"))
    dp = sizes.get("dp")
    if dp is None:
        needed = 1 if highest_rank is None else highest_rank + 1
        dp = max(1, -(-needed // (tp * cp * pp)))
        # Experts are spread over cp and dp.
        multiple = ep // gcd(ep, cp)
        dp = -(-dp // multiple) * multiple
    return {"tp": tp, "cp": cp, "dp": dp, "pp": pp}


def _check_sizes(world: int, said: str, ep: int, sizes: Mapping[str, int]) -> None:
    if world > _MOST_RANKS:
        raise OptionsError(f"{said} = {world} ranks: expected at most {_MOST_RANKS}")
    spread = sizes["cp"] * sizes["dp"]
    if spread % ep:
        raise OptionsError(
            f"--ep {ep} does not divide the {spread} ranks along cp and dp ({said}), "
            "over which experts are spread"
        )


def _decompose(rank: int, names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
    place = dict.fromkeys(DIMENSIONS, 0)
    for name in names:
        rank, place[name] = divmod(rank, sizes[name])
    return place


def read_order(order: str) -> tuple[str, ...]:
    """Take an order of dimensions apart.

    Raises `OptionsError` unless it names each of some dimensions once.
    """
    names = tuple(order.lower().split("-"))
    if not set(names) <= set(DIMENSIONS) or len(set(names)) < len(names):
        raise OptionsError(
            f"--order {order}: expected each of {', '.join(DIMENSIONS)} at most once, "
            f"with - between them, the fastest first ({DEFAULT_ORDER})"
        )
    return names


def format_ranks(ranks: Iterable[int], *, limit: int = 12) -> str:
    """Write ranks in ascending order, runs of three and more shortened, at most `limit` parts.

    >>> format_ranks([5, 0, 1, 2, 7, 8])
    '0-2, 5, 7, 8'
    """
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(parts if len(parts) <= limit else [*parts[: limit - 1], "...", parts[-1]])
