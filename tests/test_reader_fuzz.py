"""Damaged files of every format, in one place: only `DumpReadError`, bounded memory, an end."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpscope.errors import DumpReadError
from dumpscope.plugins import load_readers
from dumpscope.testing import SampleSource
from dumpscope.testing.damage import mutated
from reader_fuzz import exhaust
from test_contract import SAMPLES

READERS = {reader.name: reader for reader in load_readers().readers}
FILES = {name: tuple(make()) for name, make in SAMPLES.items()}
NAMES = sorted(FILES)
MEMORY_BYTES = 32 << 20


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(data=st.data())
def test_damage_of_all_kinds(name: str, data: st.DataObject) -> None:
    """Bytes changed, cut out, repeated, cut off: read, measured and loaded to the end."""
    sample = data.draw(st.sampled_from(FILES[name]))
    seed = data.draw(st.integers(0, 1 << 30))
    exhaust(READERS[name], mutated(sample.content, seed), sample.name)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(tail=st.binary(max_size=600), keep=st.integers(0, 64))
def test_anything_behind_a_true_beginning(name: str, tail: bytes, keep: int) -> None:
    for sample in FILES[name][:2]:
        exhaust(READERS[name], sample.content[:keep] + tail, sample.name)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20)
@given(data=st.data())
def test_two_files_that_were_mixed_up(name: str, data: st.DataObject) -> None:
    """One file's beginning and another format's end, as a disk that lost blocks leaves them."""
    own = data.draw(st.sampled_from(FILES[name]))
    other = data.draw(st.sampled_from([s for files in FILES.values() for s in files]))
    cut = data.draw(st.integers(0, len(own.content)))
    exhaust(READERS[name], own.content[:cut] + other.content[cut:], own.name)


@pytest.mark.parametrize("name", NAMES)
def test_foreign_files_under_its_name(name: str) -> None:
    """`--reader NAME` over a folder of everything: refused or read, never anything else."""
    for own in FILES[name][:1]:
        for files in FILES.values():
            for foreign in files:
                exhaust(READERS[name], foreign.content, own.name)


@pytest.mark.parametrize("name", NAMES)
def test_damage_takes_little_memory(name: str) -> None:
    tracemalloc.start()
    try:
        for sample in FILES[name]:
            for seed in range(12):
                tracemalloc.reset_peak()
                source = SampleSource(mutated(sample.content, seed), sample.name, sample.beside)
                with suppress(DumpReadError):
                    for _ in READERS[name].read(source):
                        pass
                assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES
    finally:
        tracemalloc.stop()


def test_every_registered_reader_is_here() -> None:
    own = {p.name for p in load_readers().plugins if p.package == "dumpscope"}
    assert own == set(NAMES)
