"""The progress bar of a scan: bytes on stderr, with an estimate."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dumpscope.closing import Closing

if TYPE_CHECKING:
    from dumpscope.scanning import Progress

__all__ = ["ScanProgress"]

_SHOW_AFTER_S = 0.5


class ScanProgress(Closing):
    """Shows how far a scan is, on a terminal or when asked to.

    Parameters
    ----------
    wanted
        True or False force it on or off; `None` shows it where stderr is a terminal.
    """

    def __init__(self, wanted: bool | None) -> None:
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._delay = 0.0 if wanted else _SHOW_AFTER_S
        self._bar: Any = None

    def show(self, progress: Progress) -> None:
        """Draw the state of the scan."""
        if not self._wanted:
            return
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(
                unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr, desc="scan",
                delay=self._delay, dynamic_ncols=True,
            )  # fmt: skip
        bar = self._bar
        # While the walk goes on the total grows; tqdm then shows the rate, the estimate later.
        bar.total = max(progress.bytes_seen, progress.bytes)
        bar.set_postfix_str(f"{progress.files} files", refresh=False)
        bar.update(progress.bytes - bar.n)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
