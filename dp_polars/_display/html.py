"""Building blocks of HTML for notebooks: one self-contained block without scripts, in which every text is escaped.

A block brings its own background and text colours, so they fit each other wherever it is shown. It is dark if the
notebook says that it is dark (JupyterLab, VS Code, Colab, Sphinx), and otherwise if the system prefers dark colours.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from dp_polars._display.text import escaped

FactRows = Sequence[tuple[str, str]]
"""The rows of a fact table: a name and a text each."""

_LIGHT = "--dp-text:#1f2328;--dp-quiet:#57606a;--dp-ground:#ffffff;--dp-line:#d8dee4;--dp-bar:#3b6ea8;--dp-bad:#a3351f"
_DARK = "--dp-text:#e6e8eb;--dp-quiet:#a5adb7;--dp-ground:#1c2025;--dp-line:#3a4149;--dp-bar:#6ea3dc;--dp-bad:#ef9a86"
_SAYS_DARK = (
    '[data-jp-theme-light="false"]', "body.vscode-dark", "body.vscode-high-contrast", 'html[theme="dark"]',
    '[data-theme="dark"]',
)  # fmt: skip
_SAYS_LIGHT = (
    '[data-jp-theme-light="true"]', "body.vscode-light", "body.vscode-high-contrast-light", 'html[theme="light"]',
    '[data-theme="light"]',
)  # fmt: skip


def _where(places: Iterable[str]) -> str:
    return ",".join(f"{place} .dp-polars" for place in places)


# Notebooks style every table they show, so rules that would break ours are overridden. Figures have a fixed width.
STYLE = f"""
.dp-polars{{{_LIGHT};color:var(--dp-text);background:var(--dp-ground);border:1px solid var(--dp-line);
border-radius:6px;padding:12px 14px;margin:4px 0;max-width:56rem;box-sizing:border-box;
font:13px/1.5 system-ui,sans-serif;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}}
@media (prefers-color-scheme:dark){{.dp-polars{{{_DARK}}}}}
{_where(_SAYS_LIGHT)}{{{_LIGHT}}}
{_where(_SAYS_DARK)}{{{_DARK}}}
.dp-polars *{{box-sizing:border-box}}
.dp-polars .dp-polars-title{{font-weight:600;font-size:14px;margin:0}}
.dp-polars .dp-polars-quiet{{color:var(--dp-quiet);margin:0 0 8px}}
.dp-polars .dp-polars-bad{{color:var(--dp-bad)}}
.dp-polars .dp-polars-scroll{{overflow-x:auto;max-width:100%}}
.dp-polars table{{border-collapse:collapse;border:0;margin:4px 0;color:inherit;font-size:13px;table-layout:auto}}
.dp-polars table tr{{background:transparent!important;color:inherit}}
.dp-polars table th,.dp-polars table td{{border:0;border-bottom:1px solid var(--dp-line);padding:3px 12px 3px 0;
color:inherit;vertical-align:top;max-width:none}}
.dp-polars .dp-polars-table{{width:100%}}
.dp-polars .dp-polars-table th,.dp-polars .dp-polars-table td{{text-align:left;white-space:normal}}
.dp-polars .dp-polars-table tr:last-child>th,.dp-polars .dp-polars-table tr:last-child>td{{border-bottom:0}}
.dp-polars .dp-polars-table th{{font-weight:400;color:var(--dp-quiet)}}
.dp-polars .dp-polars-facts th{{width:11.5rem}}
.dp-polars .dataframe th,.dp-polars .dataframe td{{overflow-wrap:normal}}
.dp-polars .dp-polars-meters{{display:grid;grid-template-columns:max-content minmax(60px,1fr) minmax(0,max-content);
gap:4px 12px;align-items:center;margin:0 0 8px}}
.dp-polars .dp-polars-meter{{height:8px;border-radius:4px;background:var(--dp-line);overflow:hidden}}
.dp-polars .dp-polars-meter>div{{height:100%;background:var(--dp-bar)}}
.dp-polars .dp-polars-pale>div{{opacity:.45}}
.dp-polars .dp-polars-table .dp-polars-text{{min-width:8rem}}
.dp-polars .dp-polars-table .dp-polars-line{{white-space:nowrap;overflow-wrap:normal}}
.dp-polars .dp-polars-table th.dp-polars-number,.dp-polars .dp-polars-table td.dp-polars-number{{text-align:right}}
.dp-polars .dp-polars-released{{width:auto}}
.dp-polars details{{margin:6px 0 0}}
.dp-polars summary{{cursor:pointer;color:var(--dp-quiet)}}
"""


def escape(text: str) -> str:
    """Return a text as HTML in which neither tags nor control characters have any effect."""
    return html.escape(escaped(text))


def whole(*blocks: str) -> str:
    """Return blocks as one self-contained piece of HTML."""
    return f'<div class="dp-polars"><style>{STYLE}</style>{"".join(blocks)}</div>'


def heading(title: str, below: str = "") -> str:
    """Return a title with an optional grey line below it."""
    line = f'<div class="dp-polars-quiet">{escape(below)}</div>' if below else ""
    return f'<div class="dp-polars-title">{escape(title)}</div>{line}'


def facts(rows: FactRows) -> str:
    """Return a fact table."""
    filled = [f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in rows]
    return f'<table class="dp-polars-table dp-polars-facts"><tbody>{"".join(filled)}</tbody></table>'


def columns(
    name: str, names: Sequence[str], cells: Iterable[Sequence[str]], *, numbers: Sequence[bool] | None = None
) -> str:
    """Return a named table with a header. The cells are HTML already, made by `cell`, `number_cell` and `lines`.

    `numbers` tells which columns hold numbers. Their names are aligned to the right.
    """
    kinds = [" dp-polars-number" if number else "" for number in numbers or [False] * len(names)]
    header = "".join(
        f'<th scope="col" class="dp-polars-line{kind}">{escape(name)}</th>'
        for name, kind in zip(names, kinds, strict=True)
    )
    body = "".join(f"<tr>{''.join(line)}</tr>" for line in cells)
    table = f'<table class="dp-polars-table"><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>'
    return scrolling(table, name)


def scrolling(block: str, name: str) -> str:
    """Return a block that scrolls, by keyboard as well, if it is too wide."""
    return f'<div class="dp-polars-scroll" role="region" aria-label="{escape(name)}" tabindex="0">{block}</div>'


def cell(text: str) -> str:
    """Return a table cell whose text may wrap anywhere."""
    return f'<td class="dp-polars-text">{escape(text)}</td>'


def number_cell(text: str) -> str:
    """Return a table cell with a number, aligned to the right."""
    return f'<td class="dp-polars-line dp-polars-number">{escape(text)}</td>'


def lines(*texts: str, bad: bool = False) -> str:
    """Return a table cell with lines that never wrap."""
    kind = "dp-polars-line dp-polars-bad" if bad else "dp-polars-line"
    return f'<td class="{kind}">{"<br>".join(map(escape, texts))}</td>'


def meter(name: str, share: float, text: str, *, quiet: bool = False) -> str:
    """Return a bar with its name and its text, as three cells of a grid. A quiet bar is pale."""
    kind = "dp-polars-meter dp-polars-pale" if quiet else "dp-polars-meter"
    percent = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    return (
        f"<div>{escape(name)}</div>"
        f'<div class="{kind}" role="meter" aria-label="{escape(name)}" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{percent}" aria-valuetext="{escape(text)}"><div style="width:{percent}%"></div></div>'
        f"<div>{escape(text)}</div>"
    )


def meters(bars: Iterable[str]) -> str:
    """Return aligned bars, one below the other."""
    return f'<div class="dp-polars-meters">{"".join(bars)}</div>'


def folded(title: str, block: str) -> str:
    """Return a block that opens when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{block}</details>"
