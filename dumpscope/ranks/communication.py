"""Communication operators: which operator is one, of what kind, and what it says of its group.

==============================  ==================================================================
writer                          names
==============================  ==================================================================
GE, HCCL                        HcomAllReduce, HcomReceive, HcclAlltoAllV, hcom_allReduce__868_0_1
fused with a product (MC2)      MatmulAllReduce, AllGatherMatmul, aclnnAlltoAllAllGatherBatchMatMul
torch, msprobe                  Distributed.all_reduce, c10d.allreduce_.default, isend, irecv,
                                batch_isend_irecv, _c10d_functional.all_gather_into_tensor
MindSpore                       AllReduce, HostAllGather, InnerCommIrecv, DistCommScatter, Send,
                                Receive, CollectiveGather, NeighborExchange, BatchISendIRecv
ATB                             AllReduceOperation, SendOperation, RecvOperation
==============================  ==================================================================

A name is read word by word. Words such as gather, scatter, reduce and broadcast mean an exchange
between ranks only where a prefix or a namespace says so: ReduceSum, GatherV2, ScatterNd and
BroadcastTo are local.

What a dump may say of the group, as attributes: msprobe `group_ranks`, `group_id` and, of calls of
torch.distributed, the rank they name (`input.1`, `kwargs.src`); GE `group` and `sr_tag`. GE's
`root_rank`, `src_rank` and `dest_rank` count within the group and are not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from dumpscope.model import OpRecord
from dumpscope.regexes import regex

__all__ = [
    "CommunicationKind",
    "communication_kind",
    "family_name",
    "gives_all_the_same",
    "group_ranks_of",
    "group_token",
    "named_rank",
]

CommunicationKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather",
    "scatter", "send", "recv", "send_recv", "barrier",
]  # fmt: skip

# Written word-word, all in lower case. These say all by themselves wherever a word begins.
_STRONG: tuple[tuple[str, CommunicationKind], ...] = (
    ("all-?to-?all", "all_to_all"),
    ("all-?reduce", "all_reduce"),
    ("reduce-?scatter", "reduce_scatter"),
    ("all-?gather", "all_gather"),
    ("batch-?i?-?send-?i?-?recv", "send_recv"),
    ("neighbor-?exchange", "all_to_all"),
    ("moe-?distribute-?(?:dispatch|combine)", "all_to_all"),
)
_BEGINS = "(?:^|-)(?:hcom|hccl|aclnn|dist)?"
# These mean an exchange only behind a prefix or in a namespace of communication.
_WEAK: tuple[tuple[str, CommunicationKind], ...] = (
    ("remote(?:-ref)?-read", "recv"),
    ("remote(?:-scatter)?-write", "send"),
    ("broadcast", "broadcast"),
    ("i?-?send", "send"),
    ("i?-?rec(?:v|eive)", "recv"),
    ("barrier", "barrier"),
    ("reduce", "reduce"),
    ("gather", "gather"),
    ("scatter", "scatter"),
)
_PREFIX = regex(r"^(?:aclnn-?)?(?:hcom|hccl|lccl|inner-comm|dist-comm|host-comm|collective)-?")
# Whole names of MindSpore and ATB that have no prefix. A plain Gather or Scatter is an index.
_PLAIN: Mapping[str, CommunicationKind] = MappingProxyType(
    {
        "broadcast": "broadcast",
        "broadcast-operation": "broadcast",
        "reduce": "reduce",
        "send": "send",
        "send-operation": "send",
        "isend": "send",
        "receive": "recv",
        "recv": "recv",
        "recv-operation": "recv",
        "irecv": "recv",
        "barrier": "barrier",
    }
)
_NAMESPACES = frozenset(
    {"c10d", "c10d_functional", "_c10d_functional", "comm_func", "communication", "dist",
     "distributed", "hccl"}
)  # fmt: skip
_WORDS = regex(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LONGEST = 256

_SHORT_NAME = regex(r"(?:^|[/._-])(hcom_[A-Za-z]+)__([0-9]{1,5})_([0-9]+)_([0-9]+)")
_DIGITS = regex(r"[0-9]+")
_GROUP_NAMES = frozenset(
    {"group", "group_name", "group_id", "comm_group", "hcom_group", "communicator", "kwargs.group"}
)
_TAG_NAMES = frozenset({"tag", "sr_tag", "kwargs.tag"})
_RANK_NAMES = ("kwargs.src", "kwargs.dst", "kwargs.peer", "src", "dst", "peer")
# Where torch.distributed takes the rank when it is not given by name.
_POSITION_OF_RANK: Mapping[str, str] = MappingProxyType(
    {
        "send": "input.1",
        "recv": "input.1",
        "broadcast": "input.1",
        "reduce": "input.1",
        "gather": "input.2",
        "scatter": "input.2",
    }
)
_MOST_RANKS = 1 << 20


@lru_cache(maxsize=4096)
def communication_kind(op_type: str) -> CommunicationKind | None:
    """Return the kind of communication operator that `op_type` names, `None` for all others.

    Examples
    --------
    >>> [communication_kind(t) for t in ("HcomAllReduce", "Distributed.isend", "ReduceSum")]
    ['all_reduce', 'send', None]
    """
    parts = [part for part in re.split(r"[.:/]+", op_type[-_LONGEST:]) if part]
    in_namespace = any(part.lower() in _NAMESPACES for part in parts[:-1])
    # An overload stands behind the name: c10d.allreduce_.default.
    for part in reversed(parts[-2:] if in_namespace else parts[-1:]):
        if in_namespace and part.lower() in _NAMESPACES:
            break
        words = "-".join(_WORDS.findall(part)).lower()
        bare = len(parts) == 1 or parts[-2] == "Primitive"
        kind = _kind_of_words(words, in_namespace=in_namespace, bare=bare)
        if kind is not None:
            return kind
    return None


def _kind_of_words(words: str, *, in_namespace: bool, bare: bool) -> CommunicationKind | None:
    for pattern, kind in _STRONG:
        if re.search(_BEGINS + pattern, words):
            return kind
    prefix = _PREFIX.match(words)
    if prefix is None and not in_namespace:
        return _PLAIN.get(words) if bare else None
    rest = words[prefix.end() :] if prefix else words
    for pattern, kind in _WEAK:
        if re.search(pattern, rest):
            return kind
    return None


def gives_all_the_same(op_type: str) -> bool:
    """Whether all ranks of the operator are left with the same result.

    Not where a product with the rank's own part of the weights follows (AllGatherMatmul).
    """
    kind = communication_kind(op_type)
    if kind == "all_gather":
        return "matmul" not in op_type.lower()
    return kind in ("all_reduce", "broadcast")


def family_name(op_name: str) -> str:
    """Return a name without its numbers, which may differ from rank to rank.

    The number of the group in HCCL's short names (`hcom_allReduce__868_0_1`) stays.
    """
    match = _SHORT_NAME.search(op_name)
    if match is not None:
        return f"{match[1]}__{match[2]}"
    return _DIGITS.sub("#", op_name)


def group_token(op: OpRecord) -> str:
    """Return what names the group of an operator in the dump, empty where nothing does."""
    found = [
        f"{name}={value}"
        for name, value in op.attributes
        if name.lower() in _GROUP_NAMES | _TAG_NAMES and value not in ("null", "none", "")
    ]
    return ";".join(sorted(found))


def group_ranks_of(op: OpRecord) -> tuple[int, ...] | None:
    """Return the ranks that the dump itself lists as the operator's group, ascending."""
    for name, value in op.attributes:
        if name.lower() in ("group_ranks", "rank_ids"):
            parts = [part.strip() for part in value.strip("[]() ").split(",")]
            numbers = {int(p) for p in parts if p.isascii() and p.isdigit() and len(p) < 8}
            if numbers and len(numbers) == len(parts) and max(numbers) < _MOST_RANKS:
                return tuple(sorted(numbers))
    return None


def named_rank(op: OpRecord) -> int | None:
    """Return the one rank that a call names: the root, or the other end of a message."""
    attributes = {name.lower(): value for name, value in op.attributes}
    position = _POSITION_OF_RANK.get(communication_kind(op.op_type) or "")
    for name in (*_RANK_NAMES, position):
        value = attributes.get(name or "", "")
        if value.isascii() and value.isdigit() and len(value) < 8:
            return int(value)
    return None
