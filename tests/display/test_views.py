"""What a terminal and a notebook show for sessions, plans and releases."""

import re
from html.parser import HTMLParser

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._display.fact_table import AsTable, table_text
from dp_polars._display.html import STYLE
from dp_polars._display.released_table import released_table
from tests.display.browser import JUPYTER, measure, needs_browser
from tests.display.views import HOSTILE, REGIONS, VISITS, a_session, busy_session


@pytest.fixture(scope="module")
def session():
    return busy_session()


def views(session):
    counted, several, chosen, hostile, discovered, failed = session.releases
    return {
        "session": session._repr_html_(),
        "empty session": a_session(rho=0.5, epsilon=None, unit=dp.ROW)._repr_html_(),
        "plan": several.plan._repr_html_(),
        "plan of a choice": chosen.plan._repr_html_(),
        "release": counted._repr_html_(),
        "hostile release": hostile._repr_html_(),
        "discovered keys": discovered._repr_html_(),
        "failed release": failed._repr_html_(),
        "wide release": wide()._repr_html_(),
    }


def wide():
    """Return a release that is wider than the page."""
    session = a_session()
    with session.reserve(dp.pure_cost(0.1), label="many columns") as reservation:
        return reservation.commit(pl.DataFrame({f"a_rather_long_name_{i}": [10**9 + i] for i in range(30)}))


# ---------------------------------------------------------------------- in a browser


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_view_fits_600_pixels_and_can_be_read(session, dark):
    """All views are in one page, each in its own frame, with plans unfolded."""
    together = "".join(views(session).values())
    found = measure(together, dark=dark)
    assert found["page"] == [600, 600]
    assert found["wide"] == []
    assert found["scrolled"] == 1  # the wide frame, in its own box
    assert len(found["texts"]) > 150
    worst = min(found["texts"], key=lambda text: text[1])
    assert worst[1] >= 4.5, worst
    assert found["scripts"] == 0
    assert (sum(found["ground"][:3]) < 200) == dark


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    ("theme", "system", "dark"),
    [
        ('data-jp-theme-light="false"', False, True),
        ('data-jp-theme-light="true"', True, False),
        ('class="vscode-dark"', False, True),
        ('class="vscode-light"', True, False),
    ],
)
def test_the_theme_of_the_notebook_counts_more_than_the_system(session, theme, system, dark):
    """JupyterLab's rules for tables, which colour rows and text, apply here."""
    release = session.releases[0]
    found = measure(
        session._repr_html_() + release._repr_html_() + release.plan._repr_html_(),
        dark=system, theme=theme, styles=JUPYTER,
    )  # fmt: skip
    assert (sum(found["ground"][:3]) < 200) == dark
    assert min(contrast for _, contrast in found["texts"]) >= 4.5
    assert (found["page"], found["wide"]) == ([600, 600], [])


@needs_browser
def test_the_measurement_sees_what_is_too_wide_or_too_pale():
    pale = "<div class='dp-polars'><p style='color:#aaa;background:#fff'>pale</p><script>1</script></div>"
    found = measure(pale + "<div style='width:700px'>wide</div>")
    assert found["texts"][0][1] < 4.5
    assert found["page"][0] == 700
    assert len(found["wide"]) == 1
    assert found["scripts"] == 1


# ---------------------------------------------------------------------- as HTML


class Checker(HTMLParser):
    """Collects tags and attributes; refuses what is not closed."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def parsed(html):
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert not checker.open
    return checker


def test_html_stands_alone_and_holds_no_script(session):
    for name, html in views(session).items():
        found = parsed(html)
        assert found.seen[0] == ("div", {"class": "dp-polars"}), name
        tags = {tag for tag, _ in found.seen}
        assert tags <= {
            "div", "style", "table", "thead", "tbody", "tr", "th", "td", "br", "details", "summary", "small",
        }, name  # fmt: skip
        for _, attributes in found.seen:
            assert set(attributes) <= {
                "class", "style", "role", "scope", "tabindex", "border",
                "aria-label", "aria-valuemin", "aria-valuemax", "aria-valuenow", "aria-valuetext",
            }  # fmt: skip
            classes = (attributes.get("class") or "").split()
            assert all(one.startswith("dp-polars") or one == "dataframe" for one in classes)
        assert "url(" not in html
        assert "@import" not in html


def test_styles_reach_nothing_outside():
    plain = re.sub(r"@media[^{]*\{(.*?\})\}", r"\1", STYLE, flags=re.DOTALL)
    selectors = [one.strip() for rule in re.findall(r"([^{}]+)\{", plain) for one in rule.split(",")]
    assert len(selectors) > 20
    assert all(re.search(r"(^|\s)\.dp-polars(\s|$)", one) for one in selectors), selectors


def test_user_text_is_escaped_everywhere(session):
    hostile = session.releases[3]
    assert HOSTILE in hostile.label
    for html in (session._repr_html_(), hostile._repr_html_(), hostile.plan._repr_html_()):
        assert "<script" not in html
        assert HOSTILE in "".join(parsed(html).text)
    odd = dp.Session(epsilon=1.0, unit=[HOSTILE, "</div>"])
    assert HOSTILE in "".join(parsed(odd._repr_html_()).text)


def test_bars_and_headers_say_what_they_are(session):
    found = parsed(session._repr_html_()).seen
    bars = [attributes for _, attributes in found if attributes.get("role") == "meter"]
    assert [bar["aria-label"] for bar in bars] == ["budget", "epsilon", "rho", "delta for keys"]
    assert [bar["aria-valuenow"] for bar in bars][:2] == ["42.0", "42.0"]
    assert all(bar["aria-valuemin"] == "0" and bar["aria-valuemax"] == "100" for bar in bars)
    assert all(attributes["scope"] == "col" for tag, attributes in found if tag == "th")
    rows = [attributes for tag, attributes in parsed(session.releases[0].plan._repr_html_()).seen if tag == "th"]
    assert rows
    assert all(attributes["scope"] == "row" for attributes in rows)


def shown(html):
    """Return the text that a reader sees in a view, line by line."""
    html = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    html = re.sub(r"</tr>|</div>|</summary>", "\n", html)
    html = re.sub(r"<br>", ", ", html)
    text = "".join(parsed_text(re.sub(r"</t[hd]>", " | ", html)))
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", text)
    return [line.strip(" |") for line in text.splitlines() if line.strip(" |")]


def parsed_text(html):
    checker = Checker()
    checker.handle_endtag = lambda tag: None
    checker.feed(html)
    return checker.text


def test_the_session_reads(session):
    lines = shown(session._repr_html_())
    assert lines[:7] == [
        "Privacy budget: 42 % used",
        "approximate session, epsilon 1, delta 1e-07; protects user, added or removed; in memory",
        "CLOSED since TIME UTC by charge 6 (failed): only stored releases can be read",
        'the data owner can reopen it with session.reopen(reason="...")',
        "budget",
        "42 % used, 58 % left",
        "Releases so far",
    ]
    assert lines[7:10] == [
        "no. | release | budget used | state | charged (UTC)",
        "1 | count by region, unit user | 20 % | committed | TIME",
        "2 | count, sum of value by region, unit user | 10 % | committed | TIME",
    ]
    assert lines[13].endswith("| 1 % | failed | TIME")
    assert lines[14:] == [
        "Accounts",
        "epsilon",
        "0.42 of 1",
        "rho",
        "0.0240953 of 0.0191898",
        "delta for keys",
        "6.51383e-11 of 2.5e-08",
        "Releases are accepted while epsilon or rho is within its limit, and the smaller share counts.",
    ]


def test_the_plan_reads(session):
    assert shown(session.releases[0].plan._repr_html_()) == [
        "Plan: count by region",
        "Laplace noise of scale 75; answers within 225, 19 times out of 20; uses 20 % of the budget.",
        "cut off | unknown for max_rows_per_group: say cut=True, or adopt a profile",
        "From the unit to the noise",
        "protects | user, added or removed; rows where it is null take no part",
        "groups per unit | 3 (keys= in the call)",
        "rows per unit and group | 5 (max_rows_per_group of the session)",
        "sensitivity of count | L1 15, L2 8.66025, each 5",
        "noise on count | discrete Laplace, scale 75",
        "keys | 3 public (keys= in the call)",
        "price | 20 % of the budget (by itself epsilon 0.2; fits 5 times)",
        "expected error | within 225 for 95 % of answers (privacy noise, not what caps and bounds cut off)",
    ]


def test_the_release_reads(session):
    lines = shown(session.releases[0]._repr_html_())
    assert lines[0] == "Release 1: count by region, unit user"
    assert "region | count | count_low | count_high" in lines[1]
    below = lines.index("price | 20 % of the budget (by itself epsilon 0.2)")
    assert lines[below + 1 : below + 6] == [
        "expected error | within 225 for 95 % of answers (privacy noise)",
        "cut off | unknown for max_rows_per_group: say cut=True, or adopt a profile",
        "when | TIME UTC, committed",
        "Plan: from the unit to the noise",
        "query | count by region",
    ]
    assert shown(session.releases[-1]._repr_html_())[1] == (
        "Nothing was released, because this release is failed. Its charge stays."
    )


# ---------------------------------------------------------------------- in a terminal


def test_a_session_in_a_terminal(session):
    lines = session.describe(accounts=True).splitlines()
    assert "    epsilon         [########------------]   42 %  0.42 of 1" in lines
    assert "    delta for keys  [#-------------------] 0.261 %  6.51383e-11 of 2.5e-08" in lines
    lines = session.describe().splitlines()
    assert "  budget: [########------------] 42 % used, 58 % left" in lines
    assert not [line for line in lines if "0.42" in line or "rho" in line]
    place = lines.index("  the last 5 of 6 releases (all: session.export()):")
    assert re.fullmatch(
        r"    2  count, sum of value by region, unit user +10 % +committed  .{16} UTC",
        lines[place + 1],
    )
    assert len(lines) == place + 6
    assert max(map(len, lines)) < 130
    empty = a_session(rho=0.5, epsilon=None).describe(accounts=True)
    assert "rho             [--------------------]    0 %  0 of 0.5" in empty
    assert "releases so far" not in empty


@pytest.mark.slow
def test_a_measure_without_a_bound_is_full():
    """If a Gaussian exceeds the account in epsilon, only its rho counts."""
    session = a_session()
    with session.reserve(dp.gaussian_cost(session, rho=session.terms.rho_allowed), label="all") as reservation:
        release = reservation.commit(pl.DataFrame({"n": [1]}))
    assert "inf" not in session.describe()
    text = session.describe(accounts=True)
    assert re.search(r"    epsilon +\[####################\] no bound  inf of 1\n", text)
    assert re.search(r"    rho +\[####################\]  100 %  [0-9.]+ of [0-9.]+\n", text)
    for shown in (str(release), release._repr_html_()):
        assert "all of the budget (by itself rho 0.01" in shown
        assert "inf" not in shown.replace("info", "")


def test_labels_cannot_move_the_cursor():
    session = dp.Session(epsilon=1.0, unit="user")
    with session.reserve(dp.pure_cost(0.1), label="red\x1b[31m\nnext line") as reservation:
        release = reservation.commit(pl.DataFrame({"n": [1]}))
    assert "\x1b" not in session.describe()
    assert "red [31m next line" in session.describe()
    assert "\x1b" not in str(release)


def test_a_release_in_a_terminal(session):
    release = session.releases[1]
    text = str(release)
    assert text.startswith(released_table(release.frame, {"region"}).text())
    assert "price                    10 % of the budget (by itself epsilon 0.1)" in text
    assert "expected error of n      within 899 for 95 % of answers (privacy noise)" in text
    assert "expected error of total  within " in text
    assert str(session.releases[-1]).startswith("Nothing was released, because this release is failed.")
    assert "\n" not in repr(release)


def test_every_plan_has_its_text_and_its_html_from_the_same_rows():
    with a_session():
        preview = VISITS.dp.preview
        plans = [
            preview.count("region", epsilon=0.1),
            preview.mean("value", bounds=(0, 40), max_rows_per_group="auto", epsilon=0.1),
            preview.noisy_max("region", REGIONS, epsilon=0.1),
            preview.sparse_vector(700, hits=2, of="units", epsilon=0.1),
            preview.online_queries({"region": REGIONS}, alpha=0.1, max_updates=5, epsilon=0.1),
            preview.synthesize({"region": REGIONS}, epsilon=0.1),
        ]
    with a_session(adjacency="replace"):
        plans.append(VISITS.dp.preview.randomized_response("region", categories=REGIONS, epsilon=0.1))
    for plan in plans:
        assert isinstance(plan, AsTable)
        rows = plan.rows()
        assert str(plan) == repr(plan) == f"{plan.in_short()}\n{table_text(rows)}"
        assert plan.in_short().endswith(" of the budget.")
        text = "\n".join(shown(plan._repr_html_()))
        assert all(f"{name} | {words}" in text for name, words in rows[1:])
        assert plan.in_short() in text
        assert rows[0][1] in text


def test_every_plan_says_that_rows_without_a_unit_take_no_part():
    """Rows without a unit are dropped, so an answer can be far from the number of rows that people see."""
    many = {"region": REGIONS}
    with a_session():
        preview = VISITS.dp.preview
        plans = [
            preview.count("region", epsilon=0.1),
            preview.noisy_max("region", REGIONS, epsilon=0.1),
            preview.above_threshold(10, epsilon=0.1),
            preview.synthesize(many, epsilon=0.1),
            preview.online_queries(many, alpha=0.1, max_updates=5, epsilon=0.1),
            preview.profile("region", epsilon=0.1),
        ]
    con = dp.connect(None, a_session()).register("visits", VISITS)
    plans += [con.preview("SELECT dp_count(*) FROM visits", epsilon=0.1), con.preview("SUMMARIZE visits", epsilon=0.1)]
    for plan in plans:
        assert dict(plan.rows())["protects"] == "user, added or removed; rows where it is null take no part"
    replaced = a_session(adjacency="replace", unit=["user", "value"])
    plan = dp.private(VISITS, replaced).preview.randomized_response("region", categories=REGIONS, epsilon=0.1)
    words = "user, value, replaced: values, not presence; rows where one of these is null take no part"
    assert dict(plan.rows())["protects"] == words
    rows = dp.private(VISITS, a_session(unit=dp.ROW)).preview.count(epsilon=0.1)
    assert dict(rows.rows())["protects"] == "every row, added or removed"
