"""Ranks and the operators through which they exchange values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from dumpscope.dataflow import lane_of, sequence_key
from dumpscope.model import OpRecord

__all__ = ["Collectives", "Group", "communication_kind"]

_KINDS = (
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("batchsendrecv", "send_recv"),
    ("irecv", "recv"),
    ("recv", "recv"),
    ("receive", "recv"),
    ("isend", "send"),
    ("send", "send"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
)
_COMMUNICATION = re.compile(r"^(hcom|hccl|aclnnhcom|aclnnhccl|distributed|torchdistributed|dist)")
# Names that say all by themselves, as MindSpore and GE spell them without a prefix.
_PLAIN = re.compile(r"^(allreduce|allgather|reducescatter|alltoall(v|single|vc)?|receive)$")


@lru_cache(maxsize=4096)
def communication_kind(op_type: str) -> str | None:
    """The kind of communication operator that `op_type` names, `None` for all others."""
    folded = re.sub(r"[^a-z0-9]", "", op_type.lower())
    prefix = _COMMUNICATION.match(folded)
    if prefix is None and _PLAIN.match(folded) is None:
        return None
    rest = folded[prefix.end() :] if prefix else folded
    for word, kind in _KINDS:
        if word in rest:
            return kind
    return None


@dataclass(frozen=True, slots=True)
class Group:
    """The executions of one communication operator by the ranks that ran it together.

    `complete` is false when a rank between them is missing from the dump, or when only one rank
    is there: the others then are not known.
    """

    members: tuple[OpRecord, ...]
    complete: bool


class Collectives:
    """Match communication operators across ranks: same run, step, type, name and occurrence.

    The group itself is not recorded in a dump; it is taken to be all ranks that ran the operator
    of that name in that step. `jobs` maps a run to its job (`runs.group_runs`): the processes
    of one job may have {time} folders of their own.
    """

    def __init__(self, ops: Iterable[OpRecord], jobs: Mapping[str, str]) -> None:
        by_call: dict[tuple[object, ...], list[OpRecord]] = defaultdict(list)
        seen: dict[tuple[object, ...], int] = defaultdict(int)
        found = [op for op in ops if communication_kind(op.op_type) is not None]
        for op in sorted(found, key=lambda op: (lane_of(op), sequence_key(op))):
            lane = (lane_of(op), op.step, op.op_type, op.op_name)
            run = op.place.run or ""
            key = (jobs.get(run, run), op.step, op.op_type, op.op_name, seen[lane])
            seen[lane] += 1
            by_call[key].append(op)
        self._group_of: dict[int, Group] = {}
        for members in by_call.values():
            ranks = {op.device for op in members if op.device is not None}
            complete = len(members) > 1 and ranks == set(range(len(members)))
            group = Group(tuple(members), complete)
            for op in members:
                self._group_of[op.op_id] = group

    def group_of(self, op: OpRecord) -> Group | None:
        """The executions that exchanged values with `op`, itself among them."""
        return self._group_of.get(op.op_id)
