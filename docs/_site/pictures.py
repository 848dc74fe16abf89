"""Draw the pictures of the site while it is built: `{picture} name` puts one into a page, with its content as caption.

Pictures are SVG inside the page, so they take the colours of the light and the dark theme from `_static/site.css`.
Numbers in them are computed by the package itself. `python docs/_site/pictures.py FOLDER` writes them as files.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from docutils import nodes
from docutils.parsers.rst import Directive

import dp_polars as dp

WIDTH = 640
Drawing = Callable[[], tuple[str, int, str]]


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """Return a line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def line(*points: tuple[float, float], kind: str = "line") -> str:
    """Return a line through points."""
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def box(x: float, y: float, width: float, height: float, kind: str = "box", radius: int = 6) -> str:
    """Return a rectangle."""
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}"/>'


def arrow(x: float, y: float, to_x: float) -> str:
    """Return an arrow to the right."""
    return line((x, y), (to_x, y)) + f'<path class="head" d="M{to_x:g},{y:g}l-7,-4v8z"/>'


def way_of_a_query() -> tuple[str, int, str]:
    """Draw the steps from a question to its answer."""
    steps = [
        ("Question", "Polars or SQL", "box"),
        ("Plan", "noise, price", "box"),
        ("Charge", "one budget", "box"),
        ("Exact sums", "caps, bounds", "private"),
        ("Noise", "exact integers", "private"),
        ("Answer", "with interval", "box"),
    ]
    wide, gap = 96, 12
    drawn = [box(3 * (wide + gap) - 8, 8, 2 * wide + gap + 16, 122, "zone")]
    drawn.append(text(4 * (wide + gap) - gap / 2, 28, "sees private rows", "quiet"))
    for place, (name, below, kind) in enumerate(steps):
        left = place * (wide + gap) + 2
        drawn += [box(left, 46, wide, 58, kind), text(left + wide / 2, 71, name, "strong")]
        drawn.append(text(left + wide / 2, 91, below, "small"))
        if place:
            drawn.append(arrow(left - gap, 75, left - 1))
    drawn.append(line((2 * (wide + gap) + 48, 104), (2 * (wide + gap) + 48, 150)))
    drawn.append(text(2 * (wide + gap) + 48, 166, "does not fit: refused, and it costs nothing", "quiet"))
    return "A question becomes a plan, is charged, read, noised and answered", 176, "".join(drawn)


def noise_against_epsilon() -> tuple[str, int, str]:
    """Draw the error of a count against epsilon, for units in one and in five groups."""
    left, right, top, bottom = 70, WIDTH - 130, 20, 250
    epsilons = [0.05 * 40 ** (step / 60) for step in range(61)]
    most = 100

    def across(epsilon: float) -> float:
        return left + (right - left) * math.log(epsilon / 0.05) / math.log(40)

    def up(error: float) -> float:
        return bottom - (bottom - top) * math.log10(error) / math.log10(most * 10)

    drawn = []
    for error in (1, 10, 100, 1000):
        drawn += [line((left, up(error)), (right, up(error)), kind="grid")]
        drawn.append(text(left - 8, up(error) + 4, f"±{error:,}", "small", "end"))
    for epsilon in (0.05, 0.1, 0.2, 0.5, 1, 2):
        drawn.append(text(across(epsilon), bottom + 20, f"{epsilon:g}", "small"))
    for groups, kind, name in ((5, "second", "5 groups"), (1, "first", "1 group")):
        errors = [float(dp.mechanisms.laplace_error(sensitivity=groups, epsilon=epsilon)) for epsilon in epsilons]
        points = [(across(epsilon), up(max(error, 1))) for epsilon, error in zip(epsilons, errors, strict=True)]
        drawn += [line(*points, kind=f"curve {kind}")]
        drawn.append(text(right + 8, points[-1][1] + 4, name, "small", "start"))
    errors_of_five = float(dp.mechanisms.laplace_error(sensitivity=5, epsilon=2))
    drawn.append(text((left + right) / 2, bottom + 42, "epsilon of the question", "quiet"))
    drawn.append(text(right + 8, up(errors_of_five) - 16, "a person is in", "small quiet", "start"))
    return "Half the epsilon means twice the noise", bottom + 52, "".join(drawn)


def what_epsilon_means() -> tuple[str, int, str]:
    """Draw how likely each answer is with and without one person."""
    left, right, base, height = 20, WIDTH - 20, 220, 180
    scale = 1 / 0.5

    def across(value: float) -> float:
        return left + (right - left) * (value - 990) / 21

    def curve(centre: int) -> list[tuple[float, float]]:
        values = [990 + step / 10 for step in range(211)]
        return [(across(value), base - height * math.exp(-abs(value - centre) / scale)) for value in values]

    drawn = [line((left, base), (right, base))]
    for value in range(992, 1011, 2):
        drawn.append(text(across(value), base + 18, f"{value:,}", "small"))
    drawn += [line(*curve(1000), kind="curve first"), line(*curve(1001), kind="curve second")]
    drawn.append(text(across(999) - 14, 60, "if you are not in the data", "first", "end"))
    drawn.append(text(across(1002) + 14, 60, "if you are", "second", "start"))
    at = 1004
    high = base - height * math.exp(-abs(at - 1001) / scale)
    drawn += [line((across(at), base), (across(at), high), kind="dashed")]
    drawn.append(text(across(at) + 10, high - 8, "1.65 times as likely, at most", "small", "start"))
    drawn.append(text(WIDTH / 2, base + 42, "answer to “how many people?”, with epsilon 0.5", "quiet"))
    return "With and without one person, every answer is nearly as likely", base + 52, "".join(drawn)


def what_a_cap_cuts() -> tuple[str, int, str]:
    """Draw the rows of people under a cap: what is above it is missing from every count."""
    rows = [1, 2, 1, 4, 3, 2, 6, 1, 12, 2, 5, 3, 1, 9, 2, 4, 1, 3, 22, 2]
    cap, base, step, left = 5, 210, 8, 48
    wide = (WIDTH - left - 20) / len(rows)
    drawn = []
    for place, count in enumerate(rows):
        x = left + place * wide
        kept = min(count, cap)
        drawn.append(box(x + 3, base - kept * step, wide - 6, kept * step, "kept", 2))
        if count > cap:
            drawn.append(box(x + 3, base - count * step, wide - 6, (count - cap) * step - 2, "cut", 2))
    level = base - cap * step - 1
    drawn += [line((left, base), (WIDTH - 20, base)), line((left, level), (WIDTH - 20, level), kind="dashed")]
    drawn += [text(left - 8, level + 4, "cap 5", "small", "end"), text(left - 8, base + 4, "0", "small", "end")]
    lost = sum(max(count - cap, 0) for count in rows)
    cut = sum(count > cap for count in rows)
    drawn.append(text(left, 40, f"{sum(rows)} rows of {len(rows)} people", "strong", "start"))
    drawn.append(text(left, 60, f"The cap cuts {cut} people and {lost} rows", "quiet", "start"))
    drawn.append(text(WIDTH / 2, base + 24, "one bar for each person", "quiet"))
    return "Rows above the cap are missing from the answer", base + 34, "".join(drawn)


def budget_over_time() -> tuple[str, int, str]:
    """Draw the budget of a real session: answers, a repeated question and a refusal."""
    rows = pl.DataFrame({"user": range(900), "region": ["north", "south", "west"] * 300})
    session = dp.Session(epsilon=1.0, unit="user", max_groups=1, max_rows_per_group=1)
    people = dp.private(rows, session)
    regions = ["north", "south", "west"]
    asked: list[tuple[str, Callable[[], object]]] = [
        ("people: ε 0.1", lambda: people.count(epsilon=0.1)),
        ("by region: ε 0.3", lambda: people.count("region", keys=regions, epsilon=0.3)),
        ("again: free", lambda: people.count("region", keys=regions, epsilon=0.3)),
        ("top region: ε 0.2", lambda: people.noisy_max("region", regions, epsilon=0.2)),
        ("people: ε 0.5, refused", lambda: people.count(epsilon=0.5)),
        ("people: ε 0.4", lambda: people.count(epsilon=0.4)),
    ]
    left, right, top, base = 60, WIDTH - 10, 34, 220

    def up(spent: float) -> float:
        return base - (base - top) * spent

    drawn = [line((left, up(part)), (right, up(part)), kind="grid") for part in (0, 0.25, 0.5, 0.75)]
    drawn += [text(left - 8, up(part) + 4, f"{part:.0%}", "small", "end") for part in (0, 0.5, 1)]
    drawn += [line((left, up(1)), (right, up(1)), kind="dashed"), text(left, up(1) - 9, "the budget", "quiet", "start")]
    wide = (right - left) / len(asked)
    for place, (name, ask) in enumerate(asked):
        before = float(session.spent.epsilon)
        try:
            ask()
            refused = False
        except dp.BudgetExceeded:
            refused = True
        after = float(session.spent.epsilon)
        x = left + place * wide
        drawn.append(box(x + 8, up(before), wide - 16, base - up(before), "kept", 2))
        if refused:
            drawn.append(box(x + 8, up(before + 0.5), wide - 16, up(before) - up(before + 0.5), "cut", 2))
        elif after > before:
            drawn.append(box(x + 8, up(after), wide - 16, up(before) - up(after), "new", 2))
        what, _, price = name.partition(": ")
        drawn += [text(x + wide / 2, base + 18, what, "small"), text(x + wide / 2, base + 35, price, "small quiet")]
    return "Every answer uses a part of the budget; what does not fit is refused", base + 44, "".join(drawn)


PICTURES: dict[str, Drawing] = {
    "way_of_a_query": way_of_a_query,
    "noise_against_epsilon": noise_against_epsilon,
    "what_epsilon_means": what_epsilon_means,
    "what_a_cap_cuts": what_a_cap_cuts,
    "budget_over_time": budget_over_time,
}


def svg(name: str) -> str:
    """Return a picture as SVG."""
    title, height, drawn = PICTURES[name]()
    return (
        f'<svg class="picture" role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {height}" '
        f'xmlns="http://www.w3.org/2000/svg">{drawn}</svg>'
    )


class Picture(Directive):
    """Put a picture into a page."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the figure."""
        figure = nodes.container(classes=["picture-and-caption"])
        figure += nodes.raw("", svg(self.arguments[0]), format="html")
        self.state.nested_parse(self.content, self.content_offset, figure)
        return [figure]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    for name in PICTURES:
        Path(sys.argv[1], f"{name}.svg").write_text(svg(name), encoding="utf-8")
