"""Place from folders (first cut)."""

from __future__ import annotations

import re

from dumpscope.model import Place
from dumpscope.naming import parse_run_time

__all__ = ["place_of"]


def place_of(folder: str, source: int = 0) -> Place:
    parts = [part for part in folder.split("/") if part]
    run = step = device = rank = model_name = model_id = None
    for index in range(len(parts) - 1, -1, -1):
        if parse_run_time(parts[index]) is not None:
            run = parts[index]
            tail = parts[index + 1 :]
            if tail and tail[0].isdecimal():
                device = int(tail[0])
            if len(tail) >= 3:
                model_name = tail[1]
                model_id = int(tail[2]) if tail[2].isdecimal() else None
            if len(tail) >= 4 and tail[3].isdecimal():
                step = int(tail[3])
            break
    for part in parts:
        match = re.fullmatch(r"step_?(\d{1,9})", part)
        if match:
            step = int(match[1])
        match = re.fullmatch(r"(?:worldsize\d+_global_)?rank_?(\d{1,9})", part)
        if match:
            rank = int(match[1])
    return Place(source, run, step, device, rank, None, model_name, model_id)
