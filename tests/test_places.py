"""Run, step, device and rank out of the folders, wherever the user points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dumpscope.model import Place
from dumpscope.places import place_of

TIME = "20251129120000"
OTHER = "20240101083000"
GE = f"ge_default_{TIME}_11"

LAYOUTS = [
    # CANN
    (
        f"/data/dump/{TIME}/0/{GE}/11/3",
        Place(run=TIME, device_id=0, model_name=GE, model_id=11, step=3),
    ),
    (
        f"/data/dump/{TIME}/7/resnet/1/0",
        Place(run=TIME, device_id=7, model_name="resnet", model_id=1, step=0),
    ),
    (f"/data/dump/{TIME}/0", Place(run=TIME, device_id=0)),
    (f"/data/dump/{TIME}", Place(run=TIME)),
    (f"/work/u/dump/12/{TIME}/3", Place(run=TIME, device_id=3, step=12)),
    (f"/data/dump/rank_3/{TIME}/1", Place(run=TIME, device_id=1, global_rank=3)),
    (
        f"/data/dump/rank_3/{TIME}/1/net/4/9",
        Place(run=TIME, device_id=1, global_rank=3, model_name="net", model_id=4, step=9),
    ),
    (
        f"/data/dump/step5/rank3/{TIME}/1",
        Place(run=TIME, device_id=1, global_rank=3, step=5),
    ),
    (
        f"/d/msprobe_ge_dump/worldsize8_global_rank3/{TIME}/3/net/1/4",
        Place(run=TIME, device_id=3, global_rank=3, model_name="net", model_id=1, step=4),
    ),
    (
        f"/d/msprobe_ge_dump/{TIME}/3/net/1/4",
        Place(run=TIME, device_id=3, model_name="net", model_id=1, step=4),
    ),
    ("/data/extra-info/data-dump/6", Place(device_id=6)),
    # MindSpore
    ("/d/rank_2/Net/0/12", Place(global_rank=2, model_name="Net", model_id=0, step=12)),
    ("/d/rank_2/execution_order", Place(global_rank=2)),
    ("/d/rank_2/graphs", Place(global_rank=2)),
    ("/d/rank_2/.dump_metadata", Place(global_rank=2)),
    ("/d/rank_2/Net/0/constants", Place(global_rank=2, model_name="Net", model_id=0)),
    # msprobe
    ("/d/step0/rank3/dump_tensor_data", Place(global_rank=3, step=0)),
    ("/d/step12/rank3", Place(global_rank=3, step=12)),
    ("/d/step0/rank", Place(step=0)),
    ("/d/step0/proc4711", Place(step=0, process=4711)),
    ("/d/worldsize8_global_rank3/net/4", Place(global_rank=3, model_name="net", step=4)),
    (f"/d/data_dump/5/gm_{TIME}_dump", Place(run=TIME, step=4)),
    ("/d/data_dump/5/gm_x_dump", Place(step=4)),
    # ATB
    ("/d/tensors/0_12345/3/12_Linear/after", Place(device_id=0, process=12345, step=3)),
    ("/d/tensors/0_12345/3/1_Layer/0_Linear/before", Place(device_id=0, process=12345, step=3)),
    ("/d/tensors/2_12345/0", Place(device_id=2, process=12345, step=0)),
    # Nodes
    (f"/d/host_a-1.x/{TIME}/0", Place(run=TIME, device_id=0, host="a-1.x")),
    (f"/d/node3/{TIME}/0", Place(run=TIME, device_id=0, host="node3")),
]


@pytest.mark.parametrize(("folder", "expected"), LAYOUTS)
def test_a_layout_gives_its_place(folder: str, expected: Place) -> None:
    assert place_of(folder) == expected


@pytest.mark.parametrize(("folder", "expected"), LAYOUTS)
def test_the_place_is_the_same_wherever_the_user_points(folder: str, expected: Place) -> None:
    parts = folder.split("/")
    for depth in range(2, len(parts) + 1):
        assert place_of(folder, root="/".join(parts[:depth])) == expected, depth


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (f"/data/2024/{TIME}/0", Place(run=TIME, device_id=0)),
        (f"/data/exp/2024/{TIME}/0", Place(run=TIME, device_id=0)),
        (f"/home/5/{TIME}/0", Place(run=TIME, device_id=0)),
        (f"/mnt/home/5/{TIME}/0", Place(run=TIME, device_id=0)),
        (f"/data/2/{TIME}/0/net/1/7", Place(run=TIME, device_id=0, model_name="net", model_id=1,
                                            step=7)),
        ("/home/5/dumps", Place()),
        ("/data/2024/12/31", Place()),
        ("/work/0/net/1/3", Place()),
        ("/srv/rank_3_old/step0x/dump", Place()),
        ("/srv/ranking/steps/host/node_modules/process", Place()),
        ("/srv/rank３/step²", Place()),
        ("/srv/step99999999999/rank99999999999", Place()),
        # A step folder that is somebody's own does not win over the tree's number...
        (f"/u/step2/run/{TIME}/1/net/4/9", Place(run=TIME, device_id=1, model_name="net",
                                                 model_id=4, step=9)),
        # ... but is better than nothing, and the innermost one counts.
        (f"/u/step2/run/{TIME}/1", Place(run=TIME, device_id=1, step=2)),
        ("/u/step2/x/step7/rank1", Place(step=7, global_rank=1)),
        ("/u/rank4/step7/rank1", Place(step=7, global_rank=1)),
        # The innermost time folder that has devices.
        (f"/backup/{OTHER}/dump/{TIME}/0", Place(run=TIME, device_id=0)),
        (f"/exp/{OTHER}/step0/rank0", Place(run=OTHER, step=0, global_rank=0)),
        ("/dump/20251329120000/0", Place()),  # no month 13
        (f"/dump/{TIME}/host_cpu/x", Place(run=TIME, host="cpu")),
        (f"/dump/{TIME}/0/net/{'9' * 40}/{'9' * 40}", Place(run=TIME, device_id=0)),
        ("/", Place()),
        ("", Place()),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_layout(folder: str, expected: Place) -> None:
    assert place_of(folder) == expected


@pytest.mark.parametrize(
    ("root", "below", "expected"),
    [
        (f"/data/{GE}", "0", Place()),
        ("/x", f"0/{GE}/11/3", Place(device_id=0, model_name=GE, model_id=11, step=3)),
        (f"/x/0/{GE}/11/3", "", Place(device_id=0, model_name=GE, model_id=11, step=3)),
        ("/x", "0/net/11/3", Place(device_id=0, model_name="net", model_id=11, step=3)),
        ("/x", "net/11/3", Place(model_name="net", model_id=11, step=3)),
        ("/x/net", "11/3", Place()),
        ("/data/2", f"{TIME}/0", Place(run=TIME, device_id=0)),
        ("/data", f"2/{TIME}/0", Place(run=TIME, device_id=0, step=2)),
        ("/data", f"2024/{TIME}/0", Place(run=TIME, device_id=0, step=2024)),
    ],
)
def test_bare_numbers_count_below_the_folder_that_was_asked_for(
    root: str, below: str, expected: Place
) -> None:
    folder = f"{root}/{below}" if below else root
    assert place_of(folder, root=root) == expected


def test_the_source_is_the_path_argument() -> None:
    assert place_of("/d/step0/rank1", 3) == Place(source=3, step=0, global_rank=1)


def test_a_rank_is_the_device_where_there_is_one() -> None:
    assert place_of(f"/d/rank_9/{TIME}/1").device == 9
    assert place_of(f"/d/{TIME}/1").device == 1


words = st.sampled_from(
    ["step1", "rank2", "rank", "proc3", "host_a", TIME, OTHER, "0", "12", "net", GE, "data-dump",
     "extra-info", "data_dump", f"gm_{TIME}_dump", "0_1234", "5_Op", "after", "\udcff\n", "²"]
)  # fmt: skip


@given(st.lists(words, max_size=9), st.integers(0, 9))
def test_any_folders_give_a_place(parts: list[str], depth: int) -> None:
    place = place_of("/" + "/".join(parts), 1, "/" + "/".join(parts[:depth]))
    assert place.source == 1
    assert place.run in {None, TIME, OTHER}
    assert place.global_rank == (2 if _last_rank(parts) == "rank2" else None)
    assert place.process in {None, 3, 1234}


def _last_rank(parts: list[str]) -> str | None:
    return next((part for part in reversed(parts) if part in {"rank", "rank2"}), None)
