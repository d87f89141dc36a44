"""The contract that every reader keeps, as tests which a third party's reader can inherit.

Write a class in your test suite, say which reader it tests and on which files, and run pytest::

    from dumpscope.testing import ReaderContract, Sample
    from my_package import MyReader

    class TestMyReader(ReaderContract):
        reader = MyReader()
        samples = (Sample("first.mine", b"MINE..."),)

The built-in readers are tested by the same class. Nothing here imports pytest.
"""

from __future__ import annotations

from dumpscope.testing.contract import ReaderContract
from dumpscope.testing.samples import Sample, SampleSource

__all__ = ["ReaderContract", "Sample", "SampleSource"]
