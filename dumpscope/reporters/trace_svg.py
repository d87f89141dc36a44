"""The picture of a trace: SVG that needs nothing else, for browsers, reports and tickets."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, BinaryIO

from dumpscope.reporters.trace_drawing import Picture, draw_trace
from dumpscope.tracing.trace import Trace

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["make_svg", "picture_style", "read_template", "template_environment", "write_svg"]


def write_svg(
    trace: Trace, target: BinaryIO, *, limit: int | None = None, lang: str = "en"
) -> None:
    """Write the picture as a file of its own.

    Parameters are those of `trace_drawing.draw_trace`.
    """
    target.write(make_svg(draw_trace(trace, limit=limit, lang=lang)).encode())


def make_svg(picture: Picture, *, inline: bool = False) -> str:
    """Return a picture as SVG, `inline` without the style that the page around it has."""
    template = template_environment().get_template("trace_picture.svg.j2")
    style = "" if inline else picture_style()
    return template.render(picture=picture, inline=inline, style=style)


def picture_style() -> str:
    """Return the style sheet of the picture; it holds nothing that XML or HTML would escape."""
    return read_template("trace_picture.css")


@lru_cache(maxsize=1)
def template_environment() -> Environment:
    """Return the templates of traces, with everything escaped that is put into them."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(read_template), autoescape=True, undefined=StrictUndefined
    )


def read_template(name: str) -> str:
    """Read a file of the package's templates."""
    return files("dumpscope.reporters").joinpath(f"templates/{name}").read_text(encoding="utf-8")
