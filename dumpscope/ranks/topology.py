"""Ranks, the groups they form, and the operators through which they exchange values."""

from __future__ import annotations

from dumpscope.ranks.collectives import Collectives, Group, Presence, fills_a_buffer, ranks_of
from dumpscope.ranks.communication import communication_kind
from dumpscope.ranks.parallelism import Topology, plan_topology
from dumpscope.ranks.rankmap import load_rank_map

__all__ = [
    "Collectives",
    "Group",
    "Presence",
    "Topology",
    "communication_kind",
    "fills_a_buffer",
    "load_rank_map",
    "plan_topology",
    "ranks_of",
]
