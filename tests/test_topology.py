"""Which operators communicate, and how ranks are arranged in a parallel job."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.errors import OptionsError
from dumpscope.ranks.communication import (
    communication_kind,
    family_name,
    group_ranks_of,
    group_token,
    named_rank,
)
from dumpscope.ranks.parallelism import Topology, format_ranks, plan_topology, read_order
from op_builders import clean, make_op

KINDS = {
    "all_reduce": [
        "HcomAllReduce", "HcclAllReduce", "hcom_allReduce_", "hcom_allReduce__868_0_1",
        "hcomallreduce", "MatmulAllReduce", "aclnnMatmulAllReduceAddRmsNorm", "AllReduce",
        "HostAllReduce", "InnerCommAllReduce", "DistCommAllReduce", "AllReduceOperation",
        "Distributed.all_reduce", "Distributed.all_reduce_coalesced",
        "torch.distributed.all_reduce",
        "c10d.allreduce_.default", "c10d::allreduce_", "_c10d_functional.all_reduce",
        "Mint.distributed.all_reduce", "Primitive.AllReduce",
    ],
    "all_gather": [
        "HcomAllGather", "HcomAllGatherV", "AllGatherMatmul", "aclnnAllGatherMatmul", "AllGather",
        "Distributed.all_gather", "Distributed._all_gather_base",
        "Distributed.all_gather_into_tensor", "Distributed.all_gather_object",
    ],
    "reduce_scatter": [
        "HcomReduceScatter", "ReduceScatter", "MatmulReduceScatter", "Distributed.reduce_scatter",
        "Distributed.reduce_scatter_tensor", "Distributed._reduce_scatter_base",
        "DistCommReduceScatterTensor",
    ],
    "all_to_all": [
        "HcomAllToAllV", "HcomAllToAllVC", "HcomGatherAllToAllV", "HcclAlltoAll", "AlltoAll",
        "AlltoAllV", "Distributed.all_to_all", "Distributed.all_to_all_single",
        "NeighborExchangeV2", "aclnnAlltoAllAllGatherBatchMatMul", "MoeDistributeDispatchV2",
        "MoeDistributeCombine",
    ],
    "broadcast": [
        "HcomBroadcast", "HcclBroadcast", "hcom_broadcast_", "Broadcast", "BroadcastOperation",
        "Distributed.broadcast", "Distributed.broadcast_object_list", "c10d.broadcast_.default",
    ],
    "send": ["HcomSend", "HcclSend", "Send", "SendOperation", "Distributed.send",
             "Distributed.isend", "InnerCommIsend"],
    "recv": ["HcomReceive", "HcclRecv", "Receive", "RecvOperation", "Distributed.recv",
             "Distributed.irecv", "DistCommIrecv", "Mint.distributed.recv"],
    "send_recv": ["HcclBatchSendRecv", "Distributed.batch_isend_irecv", "BatchISendIRecv",
                  "DistCommBatchIsendIrecv"],
    "reduce": ["HcomReduce", "HcclReduce", "Reduce", "Distributed.reduce"],
    "gather": ["HcomGather", "CollectiveGather", "Distributed.gather", "DistCommGather"],
    "scatter": ["HcclScatter", "CollectiveScatter", "Distributed.scatter", "DistCommScatter"],
    "barrier": ["HcclBarrier", "Barrier", "Distributed.barrier", "Distributed.monitored_barrier"],
}  # fmt: skip

LOCAL = [
    "", "MatMulV2", "ReduceSum", "ReduceSumD", "ReduceMax", "ReduceAll", "reduce_all",
    "ReduceOperation", "BroadcastTo", "BroadcastToD", "BroadcastGradientArgs", "Gather", "GatherV2",
    "GatherNd", "GatherOperation", "aclnnGather", "Scatter", "ScatterNd", "ScatterUpdate",
    "aclnnScatterNd", "Torch.gather", "Tensor.gather", "Mint.gather", "Tensor.scatter_",
    "Tensor.scatter_reduce", "Torch.broadcast_to", "Tensor.reduce", "Tensor.all", "AllFinite",
    "SmallReduce", "SmallGather", "OverallReduce", "StreamSend", "StreamRecv", "SendFile",
    "Distance", "DistributedDataParallel", "DistributedFusedLamb", "_c10d_functional.wait_tensor",
    "Functional.mse_loss", "Distributed.get_rank", "All", "Hcom", "x" * 5000,
]  # fmt: skip


@pytest.mark.parametrize(("kind", "op_type"), [(k, t) for k, found in KINDS.items() for t in found])
def test_communication_operators_are_known_by_type(kind: str, op_type: str) -> None:
    assert communication_kind(op_type) == kind


@pytest.mark.parametrize("op_type", LOCAL)
def test_local_operators_with_similar_names_are_not_communication(op_type: str) -> None:
    assert communication_kind(op_type) is None


@given(st.text(max_size=300))
def test_any_text_is_some_type(op_type: str) -> None:
    assert communication_kind(op_type) in {*KINDS, None}


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        ("gradients/HcomAllReduce-op0_1", "gradients/HcomAllReduce-op3_11", True),
        ("Distributed.all_reduce.0.forward", "Distributed.all_reduce.12.forward", True),
        ("hcom_allReduce__868_0_1", "hcom_allReduce__868_7_2", True),
        ("hcom_allReduce__868_0_1", "hcom_allReduce__721_0_1", False),
        ("layer/AllReduce-op1", "layer/AllReduce_grad-op1", False),
    ],
)
def test_numbers_in_names_do_not_tell_families_apart(name: str, other: str, same: bool) -> None:
    assert (family_name(name) == family_name(other)) is same


def test_the_group_that_a_dump_states_is_read() -> None:
    op = make_op(
        "Distributed.all_reduce", [clean()], [clean()],
        attributes=(("group_ranks", "4,0,2"), ("group_id", "1f2e"), ("kwargs.op", "SUM")),
    )  # fmt: skip
    assert group_ranks_of(op) == (0, 2, 4)
    assert group_token(op) == "group_id=1f2e"


@pytest.mark.parametrize("text", ["", "a,b", "1,,2", "-1", "99999999999", "…"])
def test_a_group_that_is_no_list_of_ranks_is_not_used(text: str) -> None:
    op = make_op("Distributed.all_reduce", [], [], attributes=(("group_ranks", text),))
    assert group_ranks_of(op) is None


@pytest.mark.parametrize(
    ("op_type", "attributes", "rank"),
    [
        ("Distributed.send", (("input.1", "3"),), 3),
        ("Distributed.irecv", (("kwargs.src", "0"),), 0),
        ("Distributed.broadcast", (("input.1", "2"),), 2),
        ("Distributed.scatter", (("input.2", "1"),), 1),
        ("Distributed.all_reduce", (("input.1", "3"),), None),
        ("Distributed.recv", (("kwargs.src", "null"),), None),
        ("HcomBroadcast", (("root_rank", "1"),), None),
    ],
)
def test_the_rank_that_a_call_names_is_read(
    op_type: str, attributes: tuple[tuple[str, str], ...], rank: int | None
) -> None:
    assert named_rank(make_op(op_type, [], [], attributes=attributes)) == rank


# --- coordinates -----------------------------------------------------------------------------


def groups_of(topology: Topology, *dimensions: str) -> list[list[int]]:
    return sorted(sorted(group) for group in topology.partition(dimensions).groups)


def test_sixteen_ranks_are_grouped_as_megatron_documents_it() -> None:
    """The example in the description of Megatron's initialize_model_parallel: tp 2, pp 4."""
    topology = plan_topology({"tp": 2, "pp": 4}, highest_rank=15)
    assert topology.assumed
    assert topology.order == "tp-cp-ep-dp-pp"
    assert groups_of(topology, "tp") == [[n, n + 1] for n in range(0, 16, 2)]
    assert groups_of(topology, "pp") == [
        [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
    ]  # fmt: skip
    assert groups_of(topology, "dp") == [
        [0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15],
    ]  # fmt: skip


def test_another_order_moves_the_ranks() -> None:
    topology = plan_topology({"tp": 2, "pp": 2, "dp": 2}, order="tp-pp-dp")
    assert not topology.assumed
    assert groups_of(topology, "pp") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups_of(topology, "dp") == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_experts_are_spread_over_data_parallel_ranks() -> None:
    topology = plan_topology({"tp": 2, "dp": 4, "ep": 2})
    assert groups_of(topology, "ep") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups_of(topology, "dp") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert topology.members("ep", 1) == {2, 3, 6, 7}


def test_experts_are_spread_over_context_parallel_ranks_too() -> None:
    topology = plan_topology({"cp": 2, "dp": 2, "ep": 4})
    assert groups_of(topology, "ep") == [[0, 1, 2, 3]]
    assert groups_of(topology, "cp") == [[0, 1], [2, 3]]


@given(
    st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 4]), st.permutations(["tp", "cp", "ep", "dp", "pp"]),
)  # fmt: skip
def test_every_grouping_holds_every_rank_once(
    tp: int, cp: int, pp: int, dp: int, order: list[str]
) -> None:
    topology = plan_topology({"tp": tp, "cp": cp, "pp": pp, "dp": dp}, order="-".join(order))
    world = tp * cp * pp * dp
    assert topology.ranks == set(range(world))
    assert len({tuple(sorted(place.items())) for place in topology.coordinates.values()}) == world
    for partition in topology.partitions:
        assert sorted(rank for group in partition.groups for rank in group) == list(range(world))
        assert {len(group) for group in partition.groups} == {partition.size}


def test_what_is_not_given_follows_from_the_dump() -> None:
    assert len(plan_topology({"tp": 4, "pp": 2}, highest_rank=31).ranks) == 32
    assert len(plan_topology({"tp": 4, "pp": 2}, highest_rank=24).ranks) == 32


@pytest.mark.parametrize(
    ("sizes", "order", "highest", "message"),
    [
        ({"tp": 0}, None, None, "--tp 0: expected a number from 1"),
        ({"tp": 2, "ep": 3, "dp": 4}, None, None, "--ep 3 does not divide the 4 ranks"),
        ({"tp": 2, "dp": 2}, "tp-pp", None, "--order tp-pp: does not say where dp comes"),
        ({"dp": 2, "ep": 2}, "tp-dp-pp", None, "does not say where ep comes"),
        ({"tp": 2}, "tp-tp", None, "expected each of tp, cp, ep, dp, pp at most once"),
        ({"tp": 2}, "tp/dp", None, "--order tp/dp"),
        ({"tp": 1 << 16, "dp": 1 << 16}, None, None, "expected at most"),
    ],
)
def test_sizes_that_cannot_be_are_refused(
    sizes: dict[str, int | None], order: str | None, highest: int | None, message: str
) -> None:
    with pytest.raises(OptionsError, match=message.replace("+", r"\+")):
        plan_topology(sizes, order=order, highest_rank=highest)


def test_an_order_is_read_in_any_case() -> None:
    assert read_order("TP-CP-EP-DP-PP") == ("tp", "cp", "ep", "dp", "pp")


@pytest.mark.parametrize(("highest", "ep", "world"), [(None, 4, 8), (9, 4, 16), (9, 1, 10)])
def test_data_parallel_ranks_that_are_not_given_have_room_for_the_experts(
    highest: int | None, ep: int, world: int
) -> None:
    assert len(plan_topology({"tp": 2, "ep": ep}, highest_rank=highest).ranks) == world


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([5, 3, 3], "3, 5"),
        ([0, 1], "0, 1"),
        ([7, 6, 4, 2, 1, 0], "0-2, 4, 6, 7"),
        (range(1000), "0-999"),
        (range(0, 100, 2), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, ..., 98"),
    ],
)
def test_ranks_are_written_short(ranks: Iterable[int], text: str) -> None:
    assert format_ranks(ranks) == text
