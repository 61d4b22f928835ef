"""What every page of an audit, or of a drill, has in common: its templates.

Invariant: a page loads nothing and runs nothing, wherever it is opened. Every text in it is escaped, whoever
has chosen it (``onceover.shown``).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onceover.ages import moment_text
from onceover.planning.commands import split_advice
from onceover.shown import visible

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES: Final = Path(__file__).with_name("templates")


def render(template: str, /, *, beside: Path | None = None, **values: Any) -> str:
    """Return a whole page.

    Args:
        template: its name, without ``.html``.
        beside: folder of further templates, which may use those of here.
        values: what it shows; all of them as text, but what is ``drawn``.
    """
    return _environment(beside).get_template(f"{template}.html").render(values)


def drawn(svg: str) -> str:
    """Return a plot of ours as what a page shows as it is."""
    from markupsafe import Markup

    return Markup(svg)  # noqa: S704 - drawn from numbers alone (onceover.audit.report.plots)


@cache
def _environment(beside: Path | None) -> Environment:
    # Only where a page is made: most commands make none.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([_TEMPLATES, *([beside] if beside else [])]),
        autoescape=True,
        finalize=_seen,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["counted"] = "{:,}".format
    environment.filters["at"] = moment_text
    environment.filters["advice"] = split_advice
    return environment


def _seen(value: Any) -> Any:
    """What is not HTML of ours does nothing in a page, and looks like nothing that it is not."""
    return value if hasattr(value, "__html__") else visible(value)
