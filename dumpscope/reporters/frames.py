"""Tables of a scan as pandas data frames, for notebooks and people's own evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dumpscope.errors import OptionsError
from dumpscope.model import Scan
from dumpscope.reporters.tables import TABLES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["to_frame"]


def to_frame(scan: Scan, table: str = "findings", *, lang: str = "en") -> pd.DataFrame:
    """Return one table of a scan as a data frame.

    Parameters
    ----------
    scan
        What `dumpscope.scan` returned.
    table
        "findings" (one row per finding, with the tensor that decided it), "tensors" (all tensors
        of the listed operators), "overflow", "expected", "failures" or "unchecked".
    lang
        Language of the sentences, "en" or "zh".

    Returns
    -------
    pandas.DataFrame
        Columns are named as those of the CSV report. Integers that may be missing are of pandas'
        nullable type, so that no count becomes a float.

    Raises
    ------
    OptionsError
        There is no table of that name.
    """
    import pandas as pd

    if table not in TABLES:
        raise OptionsError(f"there is no table {table!r}: use one of {', '.join(TABLES)}")
    columns = [column.name for column in TABLES[table].columns]
    rows = TABLES[table].compute(scan, lang=lang)
    # From objects, not from numpy's guess: it would make floats of integers beside None.
    frame = pd.DataFrame(list(rows), columns=columns, dtype=object)
    converted: pd.DataFrame = frame.convert_dtypes()
    return converted
