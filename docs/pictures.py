"""Draw the pictures of the README from the bundled sample dump: `python docs/pictures.py`.

They hold no fonts and load nothing; a viewer's own fixed-width font is used.
"""

from __future__ import annotations

import re
import sys
from html import unescape
from io import StringIO
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

import dumpscope
from dumpscope.reporters.screen import WIDTH
from dumpscope.reporters.terminal import render_scan

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
SAMPLE = "fixtures/sample_dump"
FINDINGS = 4
CHARACTER_WIDTH = 12.2
FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
LENGTH = re.compile(r'textLength="[\d.]+"([^>]*)>([^<]+)')
INDENTED = re.compile(
    r'x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>((?:&#160;)+)(?=[^&<])'
)


def measure_cells(match: re.Match[str]) -> str:
    """Give a text the room of its cells: rich counts characters, and Chinese ones are two wide."""
    rest, text = match.groups()
    return f'textLength="{CHARACTER_WIDTH * cell_len(unescape(text)):.1f}"{rest}>{text}'


def place_indented(match: re.Match[str]) -> str:
    """Turn the blanks before a text into its position: some viewers leave them out."""
    x, y, length, rest, blanks = match.groups()
    shift = CHARACTER_WIDTH * blanks.count("&")
    return f'x="{float(x) + shift:.1f}" y="{y}" textLength="{float(length) - shift:.1f}"{rest}>'


def main() -> int:
    scan = dumpscope.scan(str(ROOT / SAMPLE))
    PICTURES.mkdir(exist_ok=True)
    for lang, suffix in (("en", ""), ("zh", ".zh-CN")):
        text = render_scan(scan, limit=FINDINGS, lang=lang, colour=True)
        console = Console(record=True, width=WIDTH, file=StringIO(), legacy_windows=False)
        console.print(Text.from_ansi(text.rstrip("\n")))
        svg = console.export_svg(title=f"dumpscope scan {SAMPLE}", unique_id="scan")
        path = PICTURES / f"scan{suffix}.svg"
        svg = LENGTH.sub(measure_cells, FONT_FACE.sub("", svg))
        path.write_text(INDENTED.sub(place_indented, svg), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
