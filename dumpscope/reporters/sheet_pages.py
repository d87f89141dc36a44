"""How the sheets of the workbook come out of a printer, or as PDF.

The tables of a workbook have more columns than a page is wide. Fitted to one page they could not
be read, cut in pages nobody could put them together again; so of the widest tables only the
columns are printed that answer the question. The others are in the sheet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

__all__ = ["LAST_PRINTED", "print_columns", "set_up_page"]

LAST_PRINTED: Mapping[str, str] = MappingProxyType(
    {
        "findings": "reason",
        "tensors": "near_limit",
        "overflow": "timestamp",
        "expected": "reason",
    }
)
"""Table -> its last column on paper; tables that are not named here are printed whole."""

_A4 = 9  # ECMA-376 part 1, 18.3.1.63: paperSize
_MARGIN_INCHES = 0.4
_FOOT_INCHES = 0.6


def set_up_page(sheet: Any, title: str) -> None:
    """Print in landscape, as wide as one page, with title and page number at the foot."""
    from openpyxl.worksheet.page import PageMargins
    from openpyxl.worksheet.properties import PageSetupProperties

    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.paperSize = _A4
    sheet.sheet_properties.pageSetUpPr = PageSetupProperties(fitToPage=True)
    sheet.page_setup.fitToWidth = 1
    sheet.page_setup.fitToHeight = 0  # as many as it takes
    sheet.page_margins = PageMargins(
        left=_MARGIN_INCHES, right=_MARGIN_INCHES, top=_MARGIN_INCHES, bottom=_FOOT_INCHES,
        header=_MARGIN_INCHES / 2, footer=_MARGIN_INCHES / 2,
    )  # fmt: skip
    sheet.oddFooter.left.text = title.replace("&", "&&")
    sheet.oddFooter.right.text = "&P / &N"


def print_columns(sheet: Any, table: str, names: Sequence[str], rows: int) -> None:
    """Print the head again on every page, and of a wide table the columns that matter.

    Parameters
    ----------
    rows
        Rows of the sheet, its head included.
    """
    from openpyxl.utils import get_column_letter

    sheet.print_title_rows = "1:1"
    last = names.index(LAST_PRINTED[table]) + 1 if table in LAST_PRINTED else len(names)
    sheet.print_area = f"A1:{get_column_letter(last)}{rows}"
