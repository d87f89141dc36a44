"""What the folders around a dump file say about run, step, device and rank.

The layouts, innermost folder last (`[…]` may be missing)::

    [step{n}/][rank_{r}/][{step}/]{time}/{device}[/{model}/{model id}/{data index}]   CANN
    [worldsize{n}_global_]rank{r}/{time}/{device}/…                         CANN, graph mode
    rank_{r}/{net}/{graph}/{iteration}                                      MindSpore
    step{n}/{rank{r}|rank|proc{pid}}                                        msprobe
    worldsize{n}_global_rank{r}/{model}/{token}                             msprobe, FX graphs
    data_dump/{token + 1}/gm_{time}_dump                                    msprobe, FX, old
    extra-info/data-dump/{device}                                           exception dumps
    {device}_{pid}/{round}[/{id}_{operator}…/{before|after}]                ATB

The whole path decides, not only what lies below the folder that was asked for: so one step, one
rank, one device or one file gives the same place as the root. Hence only forms that nobody uses
by chance count above that folder: `rank_3` does, a bare number does not.
"""

from __future__ import annotations

import re

from dumpscope.model import Place
from dumpscope.naming import parse_run_time
from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = ["place_of"]

_STEP = regex(r"step[_-]?([0-9]{1,10})")
_RANK = regex(r"(worldsize[0-9]{1,9}_global_)?rank(?:[_-]?([0-9]{1,9}))?")
_PROCESS = regex(r"proc[_-]?([0-9]{1,10})")
_HOST = regex(r"host[_-]?([A-Za-z0-9][A-Za-z0-9.-]{0,252})|(node[_-]?[0-9]{1,6})")
_NUMBER = regex(r"[0-9]{1,10}")
_DEVICE = regex(r"[0-9]{1,5}")
_MODEL = regex(r"ge_default_[0-9]{14}_[0-9]+")
_FX_TIME = regex(r"gm_(.*)_dump")
_ATB_PROCESS = regex(r"([0-9]{1,3})_([0-9]{3,10})")
_ATB_OPERATOR = regex(r"[0-9]{1,10}_[A-Za-z].*", re.DOTALL)
_YEAR = regex(r"(?:19|20)[0-9]{2}")
_OWNERS = frozenset({"home", "users", "Users"})
_NO_NETS = frozenset({"execution_order", "graphs", "debug_files", ".dump_metadata"})


@record(frozen=False, slots=True)
class _Draft:
    """A place while it is put together; what is set first stays."""

    run: str | None = None
    step: int | None = None
    device_id: int | None = None
    global_rank: int | None = None
    host: str | None = None
    model_name: str | None = None
    model_id: int | None = None
    process: int | None = None


def place_of(folder: str, source: int = 0, root: str | None = None) -> Place:
    """Read the place of a folder's files out of its path.

    Parameters
    ----------
    folder
        Absolute path of the folder, links resolved.
    source
        Number of the PATH argument below which it lies.
    root
        The folder that was asked for. Below it bare numbers may be steps and devices too.

    Returns
    -------
    Place
        One object for all files of the folder. What no folder says is `None`.
    """
    parts = [part for part in folder.split("/") if part]
    below = len(parts)
    if root is not None:
        below = len([part for part in root.split("/") if part])
    draft = _Draft()
    words = _Words(parts)
    draft.global_rank = words.rank
    draft.process = words.process
    draft.host = words.host
    time = _find_time(parts)
    if words.names_step_of(time):
        draft.step = words.step
    if time is not None:
        _read_cann(draft, parts, time, below)
    elif words.rank_index is not None:
        _read_rank_tree(draft, parts[words.rank_index + 1 :], words.rank_is_global)
    if draft.device_id is None:
        _read_rare(draft, parts)
    if draft.step is None:
        draft.step = words.step
    if draft.step is None and draft.device_id is None and time is None:
        _read_without_time(draft, parts, below)
    return Place(
        source=source,
        run=draft.run,
        step=draft.step,
        device_id=draft.device_id,
        global_rank=draft.global_rank,
        host=draft.host,
        model_name=draft.model_name,
        model_id=draft.model_id,
        process=draft.process,
    )


class _Words:
    """The folders that name what their number is, the innermost of each kind."""

    def __init__(self, parts: list[str]) -> None:
        self.host: str | None = None
        self.process: int | None = None
        self.rank: int | None = None
        self.rank_index: int | None = None
        self.rank_is_global = False
        self.step: int | None = None
        self._step_index = -1
        self._indices: set[int] = set()
        for index in range(len(parts) - 1, -1, -1):
            part = parts[index]
            if self.step is None and (match := _STEP.fullmatch(part)):
                self.step, self._step_index = int(match[1]), index
            elif self.rank_index is None and (match := _RANK.fullmatch(part)):
                self.rank, self.rank_index = _number(match[2]), index
                self.rank_is_global = match[1] is not None
            elif self.process is None and (match := _PROCESS.fullmatch(part)):
                self.process = int(match[1])
            elif self.host is None and (match := _HOST.fullmatch(part)):
                self.host = match[1] or match[2]
            else:
                continue
            self._indices.add(index)

    def names_step_of(self, tree: int | None) -> bool:
        """Say whether step{n} belongs to the tree at an index: only such folders lie between.

        A step folder farther up (/home/u/step2/run/…) must not win over the tree's own number.
        """
        if self.step is None:
            return False
        if tree is None:
            tree = self.rank_index
        return tree is None or all(
            index in self._indices for index in range(self._step_index + 1, tree)
        )


def _find_time(parts: list[str]) -> int | None:
    """Find the {time} folder: the innermost one above a device, else the innermost one."""
    innermost = None
    for index in range(len(parts) - 1, -1, -1):
        if parse_run_time(parts[index]) is not None:
            if index + 1 < len(parts) and _DEVICE.fullmatch(parts[index + 1]):
                return index
            if innermost is None:
                innermost = index
    return innermost


def _read_cann(draft: _Draft, parts: list[str], time: int, below: int) -> None:
    """Read {time}/{device}/{model}/{model id}/{data index} and a step number above."""
    draft.run = parts[time]
    tail = parts[time + 1 :]
    if tail and not _DEVICE.fullmatch(tail[0]):
        return
    if tail:
        draft.device_id = int(tail[0])
    if len(tail) >= 3 and _NUMBER.fullmatch(tail[2]):
        draft.model_name = tail[1]
        draft.model_id = int(tail[2])
        if draft.step is None and len(tail) >= 4:
            draft.step = _whole_number(tail[3])
    _read_outer_step(draft, parts, time, below)


def _read_outer_step(draft: _Draft, parts: list[str], time: int, below: int) -> None:
    """Take a bare number above {time} for the step, where it can hardly be anything else.

    Below the folder that was asked for it is one. Above, a year is none, nor is a folder so near
    to the root of the file system that it may be anybody's (/home/5, /data/2).
    """
    index = time - 1
    if draft.step is not None or index < 0 or not _NUMBER.fullmatch(parts[index]):
        return
    if index >= below or (
        index >= 2 and parts[index - 1] not in _OWNERS and not _YEAR.fullmatch(parts[index])
    ):
        draft.step = int(parts[index])


def _read_rank_tree(draft: _Draft, tail: list[str], is_global: bool) -> None:
    """Read what lies below a rank folder that holds no {time} folder."""
    if len(tail) < 2 or tail[0] in _NO_NETS or not _NUMBER.fullmatch(tail[1]):
        return
    if is_global:  # {model}/{token}: FX graphs have no graph number
        draft.model_name = tail[0]
        number = tail[1]
    elif len(tail) >= 3:
        draft.model_name, draft.model_id = tail[0], int(tail[1])
        number = tail[2]
    else:
        return
    if draft.step is None:
        draft.step = _whole_number(number)


def _read_rare(draft: _Draft, parts: list[str]) -> None:
    """Read exception dumps, ATB and old FX dumps."""
    for index in range(len(parts) - 1, 0, -1):
        part, above = parts[index], parts[index - 1]
        if above == "data-dump" and _DEVICE.fullmatch(part):
            draft.device_id = int(part)
            return
        if _NUMBER.fullmatch(part):
            match = _ATB_PROCESS.fullmatch(above)
            follows = parts[index + 1] if index + 1 < len(parts) else None
            if match and (follows is None or _ATB_OPERATOR.fullmatch(follows)):
                draft.device_id, draft.process = int(match[1]), int(match[2])
                if draft.step is None:
                    draft.step = int(part)
                return
            if above == "data_dump" and follows and (match := _FX_TIME.fullmatch(follows)):
                if draft.step is None:
                    draft.step = max(0, int(part) - 1)
                if parse_run_time(match[1]) is not None:
                    draft.run = match[1]
                return


def _read_without_time(draft: _Draft, parts: list[str], below: int) -> None:
    """Read {device}/{model}/{model id}/{data index} of a tree that lost its {time} folder."""
    if len(parts) < 3 or not (_NUMBER.fullmatch(parts[-1]) and _NUMBER.fullmatch(parts[-2])):
        return
    model = parts[-3]
    device = parts[-4] if len(parts) > 3 else ""
    inside = len(parts) - below
    known = _MODEL.fullmatch(model) is not None
    if not known and (inside < 3 or _NUMBER.fullmatch(model)):
        return
    draft.model_name, draft.model_id = model, int(parts[-2])
    draft.step = int(parts[-1])
    if _DEVICE.fullmatch(device) and (known or inside >= 4):
        draft.device_id = int(device)


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def _whole_number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
