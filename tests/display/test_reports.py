"""Tables of released frames, plans in one sentence, and reports for memos."""

import datetime as dt
import re
from decimal import Decimal

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._display.released_table import MOST_ROWS, released_table
from tests.display.test_views import parsed, shown
from tests.display.views import HOSTILE, REGIONS, VISITS, a_session

MANY = pl.DataFrame(
    {
        "year": [2013, 2014],
        "name": ["a|b", None],
        "flights": [336776, -5],
        "mean": [12.639070, float("nan")],
        "paid": [Decimal("1234.50"), None],
        "total": [123456789.25, 0.00001],
        "day": [dt.date(2026, 1, 2), None],
        "late": [True, False],
    }
)


def test_keys_are_plain_and_numbers_have_separators():
    table = released_table(MANY, {"year", "name"})
    assert table.rows == (
        ("2013", "a|b", "336,776", "12.6391", "1,234.50", "123,456,789", "2026-01-02", "true"),
        ("2014", "null", "-5", "nan", "null", "1e-05", "null", "false"),
    )
    assert table.numbers == (False, False, True, True, True, True, False, False)
    header, line, first, _ = table.text().splitlines()
    assert header.split() == MANY.columns
    assert set(line) == {"-", " "}
    assert header.index("name") == first.index("a|b"), "text stands on the left"
    assert header.index("flights") + len("flights") == first.index("336,776") + len("336,776")


def test_no_row_is_elided_before_the_limit():
    frame = pl.DataFrame({"place": range(MOST_ROWS + 3), "count": range(MOST_ROWS + 3)})
    table = released_table(frame, {"place"})
    assert len(table.rows) == MOST_ROWS
    assert table.text().splitlines()[-1] == "... 3 more rows: see release.frame"
    assert "3 more rows" in table.html()
    assert table.markdown().endswith("... 3 more rows: see release.frame")
    assert "more" not in released_table(frame.head(MOST_ROWS), {"place"}).text()
    wide = pl.DataFrame({f"a_rather_long_name_{i}": [i] for i in range(30)})
    assert max(map(len, released_table(wide, ()).text().splitlines())) <= 150
    assert "more columns: see release.frame" in released_table(wide, ()).text()
    assert released_table(frame.clear(), {"place"}).rows == ()


def test_no_text_of_the_data_has_an_effect():
    frame = pl.DataFrame({HOSTILE: ["\x1b[31m`x`", "<b>|*a*_b_ c_d"], "\x1b": [1, 2]})
    table = released_table(frame, {HOSTILE})
    assert "\x1b" not in table.text() + table.html() + table.markdown()
    assert HOSTILE in "".join(parsed(table.html()).text)
    assert r"&lt;b&gt;\|\*a\*\_b\_ c_d" in table.markdown()
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in table.markdown().splitlines())


def counted(**options):
    with a_session() as session:
        VISITS.dp.count("region", keys=REGIONS, epsilon=0.2, **options)
    return session.releases[-1]


def test_a_report_says_what_a_reader_has_to_know():
    release = counted(confidence=0.9)
    report = release.report()
    assert isinstance(report, dp.Report)
    day = dt.datetime.fromisoformat(release.finished_at)
    protection, accuracy, cut = report.paragraphs
    assert protection == (
        f"These numbers were released with differential privacy on {day.day} {day:%B %Y}: whoever sees them can hardly "
        "tell whether any one user is in the data. Each user counts in at most 3 groups, with at most 5 rows in each. "
        "The release used 20 % of the budget of its session and has, by itself, epsilon 0.2."
    )
    assert accuracy == (
        "Accuracy: Laplace noise of scale 75; answers within 225, 19 times out of 20. This is the error of the noise "
        "alone, not of what caps and bounds cut off. With a probability of 90 %, the answer without noise lies between "
        "the columns that end with _low and _high."
    )
    assert cut == "Cut off: unknown for max_rows_per_group."
    numbers = [f"{count:,}" for count in release.frame["count"]]
    for written in (report.markdown, report.html):
        assert all(number in written for number in numbers)
    assert report.markdown.startswith("## Count by region\n\nThese numbers")
    assert str(report) == report._repr_markdown_() == report.markdown
    lines = shown(report._repr_html_())
    assert lines[0].startswith("Count by region")
    assert {tag for tag, _ in parsed(report.html).seen} <= {
        "div", "style", "p", "table", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip


def test_a_report_of_a_label_a_filter_a_replacement_and_a_choice():
    assert counted(label="Visits in May").report().title == "Visits in May"
    with a_session() as session:
        VISITS.dp.filter(pl.col("value") > 3).mean("value", bounds=(0, 40), epsilon=0.2)
        VISITS.dp.noisy_max("region", REGIONS, epsilon=0.1)
        VISITS.dp.top_k("region", 2, REGIONS, epsilon=0.1, score="units")
    mean, best, two = (release.report() for release in session.releases)
    assert mean.title == "Mean of value where value > 3"
    assert best.title == "Region with the highest count"
    assert two.title.startswith("Region: the 2 with the highest ")
    with a_session(adjacency="replace", group_size=2) as session:
        VISITS.dp.randomized_response("region", categories=REGIONS, epsilon=0.1)
    assert "hardly tell what the data of any 2 units (user) are." in session.releases[0].report().paragraphs[0]
    with a_session(group_size=3) as session:
        VISITS.dp.count(epsilon=0.1)
    assert "hardly tell whether any 3 units (user) are in the data." in session.releases[0].report().paragraphs[0]


@pytest.mark.slow
def test_a_report_of_a_median_says_when_its_rank_tells_nothing_and_names_no_column_that_is_not_there():
    session = a_session()
    VISITS.dp.median("value", bounds=(0, 100), epsilon=0.1, confidence=0.95, session=session)
    accuracy = session.releases[-1].report().paragraphs[1]
    assert "the answer can be anything in a group of fewer than about" in accuracy
    assert "_low" not in accuracy
    VISITS.dp.median("value", bounds=(0, 100), epsilon=0.1, confidence=0.95, interval="value", session=session)
    assert "_low and _high" in session.releases[-1].report().paragraphs[1]


def test_the_error_of_a_mean_is_told_for_a_group_in_which_it_is_useful():
    plan = VISITS.dp.preview.mean("value", bounds=(0, 100), epsilon=0.1, session=a_session())
    useful, general = (
        r"within ([\d.]+) in a group in which ([\d,]+) rows count, ",
        r"\(within ([\d,.]+) / n with n rows\)",
    )
    found = re.search(f"{useful}.* {general}", plan.in_short())
    assert found is not None, plan.in_short()
    error, rows, per_row = (float(text.replace(",", "")) for text in found.groups())
    assert 9 < error <= 10, "a tenth of the distance between the bounds"
    assert abs(error * rows / per_row - 1) < 0.01


def test_a_report_is_saved_and_a_failure_has_none(tmp_path):
    release = counted()
    release.report().save(tmp_path / "memo.md")
    assert (tmp_path / "memo.md").read_text() == release.report().markdown
    release.report().save(tmp_path / "memo.HTML")
    assert (tmp_path / "memo.HTML").read_text().startswith("<!doctype html>")
    with pytest.raises(dp.InvalidParameterError, match=r"\.md or \.html"):
        release.report().save(tmp_path / "memo.docx")
    session = a_session()
    with session.reserve(dp.pure_cost(0.1), label="nothing"):
        pass
    with pytest.raises(dp.InvalidParameterError, match="nothing to report"):
        session.releases[-1].report()


def test_another_process_reports_what_the_ledger_knows(tmp_path):
    with a_session(ledger=tmp_path / "ledger.db"):
        VISITS.dp.count("region", keys=REGIONS, epsilon=0.2)
    (release,) = dp.Session.from_ledger(tmp_path / "ledger.db").releases
    report = release.report()
    assert release.plan is None
    assert report.title == release.label
    assert len(report.paragraphs) == 1
    assert report.table.names == ("region", "count")
    assert report.table.numbers == (False, True)


def test_every_plan_has_a_sentence():
    with a_session(delta=1e-6):
        preview = VISITS.dp.preview
        said = [
            preview.count("region", keys=REGIONS, epsilon=0.2).in_short(),
            preview.count_units(epsilon=0.2).in_short(),
            preview.mean("value", bounds=(0, 40), epsilon=0.2, if_rows=1000).in_short(),
            preview.mean("value", bounds="auto", epsilon=0.2).in_short(),
            preview.group_by("region").agg(
                n=dp.count(), total=dp.sum("value", bounds=(0, 40)), keys=REGIONS, epsilon=0.2
            ).in_short(),
            preview.noisy_max("region", REGIONS, epsilon=0.1).in_short(),
        ]  # fmt: skip
    assert said == [
        "Laplace noise of scale 75; answers within 225, 19 times out of 20; uses 20 % of the budget.",
        "Laplace noise of scale 5; answers within 15, 19 times out of 20; uses 20 % of the budget.",
        "Laplace noise; answers within 2.083 in a group of 1,000 rows, 19 times out of 20; uses 20 % of the budget.",
        "Noise that depends on caps or bounds, which are estimated first; uses 20 % of the budget.",
        "Laplace noise of scales 150 and 6,000; n within 449 and total within 17,970, 19 times out of 20; uses 20 % of "
        "the budget.",
        "The exponential mechanism chooses one among 3; its score is within 204.7 of the best, 19 times out of 20; "
        "uses 5.45 % of the budget.",
    ]
