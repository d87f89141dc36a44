"""The result store: one SQLite file that holds scans of measured records.

A file of a dump is stored once for each version of it that was seen, and a scan is a list of
links to such file records. So a rescan of an unchanged tree adds links only, and whatever a
killed scan had committed is there for the next one. Verdicts are not stored: they are computed
from the records whenever they are asked for.
"""

from __future__ import annotations

from dumpscope.store.encoding import AddressColumns
from dumpscope.store.listing import ScanInfo, ScanState, StoreListing
from dumpscope.store.location import default_store_path, existing_store_path
from dumpscope.store.questions import StoreQuestions
from dumpscope.store.selection import Selection
from dumpscope.store.writing import StoreWriting

__all__ = [
    "AddressColumns",
    "ScanInfo",
    "ScanState",
    "Selection",
    "Store",
    "default_store_path",
    "existing_store_path",
]


class Store(StoreWriting, StoreQuestions, StoreListing):
    """One store file, opened with `Store.open`. Use it from the thread that opened it."""
