"""What all charts share: Altair, imported when it is needed, and values in a form that charts can hold."""

from __future__ import annotations

import contextlib
import importlib
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from dp_polars.errors import DPError

BLUE, RED, GREY, ORANGE, DARK = "#3b6ea8", "#a3351f", "#6b7480", "#c9822b", "#30363d"
WIDTH = 420

ChartRow = dict[str, Any]


def altair() -> Any:
    """Return the module Altair, or raise an error that says how to install it."""
    try:
        return importlib.import_module("altair")
    except ImportError:
        raise DPError("Charts need Altair, which is not installed: pip install 'dp-polars[plot]'.") from None


def portable(chart: Any) -> Any:
    """Return a chart that notebooks show without a network, even in an exported page.

    Notebooks get the chart as data, which JupyterLab and VS Code draw by themselves, and as a picture for everything
    else. Altair's own HTML loads scripts from the network. If the user chose another renderer
    (`alt.renderers.enable`), that one is used.
    """
    shown = chart.copy(deep=False)
    # Altair's own __setattr__ would add the attribute to the picture, so it is bypassed.
    object.__setattr__(shown, "__class__", _portable(type(chart)))
    return shown


_PORTABLE: dict[Any, Any] = {}


def _portable(drawn: Any) -> Any:
    """Return the portable subclass of a chart class of Altair."""
    if drawn in _PORTABLE:
        return _PORTABLE[drawn]

    def bundle(self: Any, *given: Any, **words: Any) -> Any:
        alt = altair()
        try:
            pictures = importlib.import_module("vl_convert")
        except ImportError:
            pictures = None
        if pictures is None or alt.renderers.active != "default":
            return drawn._repr_mimebundle_(self, *given, **words)
        version = str(alt.SCHEMA_VERSION).lstrip("v").split(".")[0]
        found = {f"application/vnd.vegalite.v{version}+json": self.to_dict()}
        # A picture that can't be drawn, for example because memory is short, must not hide the chart.
        with contextlib.suppress(Exception):
            found["image/svg+xml"] = pictures.vegalite_to_svg(self.to_json())
        return found

    def to_dict(self: Any, *given: Any, **words: Any) -> Any:
        return _without_scripts(drawn.to_dict(self, *given, **words))

    made = {"_repr_mimebundle_": bundle, "to_dict": to_dict, "__doc__": drawn.__doc__}
    _PORTABLE[drawn] = type(drawn.__name__, (drawn,), made)
    return _PORTABLE[drawn]


_SCRIPT = re.compile(r"<(?=/?script|!--)", re.IGNORECASE)


def _without_scripts(part: Any) -> Any:
    """Return a chart as data in which no text can end the script that pages hold it in, or start another.

    Altair writes the data of a chart into its HTML as they are, and keys, names and labels may be anybody's texts. A
    space of no width behind the bracket changes nothing that a reader sees.
    """
    if isinstance(part, str):
        return _SCRIPT.sub("<\u200b", part)
    if isinstance(part, dict):
        return {_without_scripts(name): _without_scripts(value) for name, value in part.items()}
    return [_without_scripts(value) for value in part] if isinstance(part, list) else part


def inline(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return rows as data that is stored in the chart itself."""
    return altair().InlineData(values=[{name: plain(value) for name, value in row.items()} for row in rows])


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it, with None for NaN and infinity."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | str):
        return value
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, date):
        return f"{value.isoformat()}T00:00:00"  # a browser reads a date without a time as midnight in UTC
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def title(text: str, *below: str) -> Any:
    """Return the title of a chart, with grey lines below it."""
    lines = [line for text in below if text for line in textwrap.wrap(text, 90)]
    return altair().TitleParams(text=textwrap.wrap(text, 70), subtitle=lines, anchor="start", subtitleColor=GREY)


def number(field: str, name: str, **words: Any) -> Any:
    """Return a tooltip that shows a number."""
    return altair().Tooltip(field=field, type="quantitative", title=name, format=",.6~g", **words)


def label(field: str, name: str) -> Any:
    """Return a tooltip that shows a text."""
    return altair().Tooltip(field=field, type="nominal", title=name)
