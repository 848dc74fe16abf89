"""The documentation is true: what it points to exists, and its first page prints what it shows."""

import ast
import contextlib
import io
import re
import shlex
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import duckdb
import polars as pl
import pytest

import dp_polars as dp
from dp_polars._sql.functions import _FUNCTIONS

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]

POINTER = re.compile(r"`(tests/[\w/]+\.py)(?:::([^`]+))?`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
IN_DUCKDB = {f"dp.{name}" for name in (*_FUNCTIONS, "budget", "randomized_response", "estimate_frequencies")}
"""The functions of `dp.register`, some of which have other names in Python."""
NAME = re.compile(r"(?<![\w.])(df\.dp|lf\.dp|dp)((?:\.[A-Za-z_]\w*)+)")


def by_name(paths):
    return pytest.mark.parametrize("page", paths, ids=lambda path: path.name)


def prose(page):
    """Return a page without its blocks of code, which run as doctests or show other languages."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def names_in(path):
    """Return the tests of a file by name, those of a class as Class::name."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return {name for name in found if name.split("::")[-1].startswith("test_")}


def missing_pointers(text):
    """Return the pointers to tests that don't exist. The case of a parametrised test is ignored."""
    return [
        f"{path}::{name}" if name else path
        for path, name in POINTER.findall(text)
        if not (ROOT / path).is_file() or (name and name.split("[")[0] not in names_in(path))
    ]


@cache
def anchors_of(path):
    """Return the places in a page that a link can name: its headings, as GitHub spells them."""
    headings = re.findall(r"^#+ +(.+)$", prose(path), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


def broken_links(page, text):
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors_of(file)):
            broken.append(target)
    return broken


def unknown_names(text):
    """Return the names of the API in code that don't exist, such as `dp.mechanisms.gaussian` or `df.dp.count`."""
    frame = pl.DataFrame({"user": [1]}).dp
    unknown = []
    for code in CODE.findall(text):
        for start, path in NAME.findall(code):
            thing = dp if start == "dp" else frame
            for name in path.strip(".").split("."):
                thing = getattr(thing, name, None)
            if thing is None and start + path not in IN_DUCKDB:
                unknown.append(start + path)
    return unknown


@pytest.mark.slow
@by_name(DOCS)
def test_every_test_that_a_page_points_at_is_there(page):
    assert not missing_pointers(page.read_text())


@by_name(PAGES)
def test_every_link_leads_to_a_file_and_a_place_in_it(page):
    assert not broken_links(page, prose(page))


@by_name(PAGES)
def test_every_folder_and_file_of_the_package_that_a_page_names_is_there(page):
    """Internals begin with an underscore: `_plan`, `_plan/grid.py`, `dp_polars/_engines/bounding/`."""
    named = set(re.findall(r"`(?:dp_polars/)?(_[a-z][\w/.]*)`", prose(page)))
    columns = {"_low", "_high"}
    assert not [name for name in named - columns if not list((ROOT / "dp_polars").glob(f"{name}*"))]


@by_name(PAGES)
def test_every_name_of_the_api_exists(page):
    assert not unknown_names(prose(page))


@pytest.mark.slow
@by_name(sorted((ROOT / "dp_polars").rglob("*.py")))
def test_every_name_of_the_api_in_a_docstring_exists(page):
    nodes = ast.walk(ast.parse(page.read_text()))
    documented = [node for node in nodes if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    text = "\n".join(ast.get_docstring(node) or "" for node in documented)
    assert not unknown_names(text)


def test_guarantees_and_literature_name_their_tests():
    """Each bullet of a guarantee (except limits and the trust model) and each row of a table has a pointer."""
    bullets = re.findall(r"^(?:- |\| ).*?(?=^- |^\| |^#|\Z)", (ROOT / "docs/guarantees.md").read_text(), re.M | re.S)
    assert sum("`tests/" in one for one in bullets) >= 50
    for line in (ROOT / "docs/literature.md").read_text().splitlines():
        if line.startswith("| ") and "|---" not in line and not line.endswith("| test |"):
            assert POINTER.search(line), line[:60]


def blocks_of(page, language):
    """Return the blocks of code of a page in a language, also those inside lists."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.M)
    return [re.sub(rf"^{indent}", "", block, flags=re.M) for indent, block in found]


RUN_ELSEWHERE = {
    "README.md": "test_the_readme_prints_what_it_shows",
    "docs/howto/spark.md": "needs a cluster; examples/spark_on_sail.py asks the same",
    "docs/reference/spark.md": "needs a cluster; examples/spark_on_sail.py asks the same",
}


@by_name(PAGES)
def test_every_block_of_python_and_sql_is_run(page):
    """Blocks with prompts run as doctests, executed pages run when the site is built, and statements run below."""
    name = page.relative_to(ROOT).as_posix()
    assert name in RUN_ELSEWHERE or all(">>>" in block for block in blocks_of(page, "python"))
    assert not blocks_of(page, "sql") or name == "docs/reference/sql.md"
    assert not blocks_of(page, "toml") or name == "docs/howto/policy.md"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["command-line", "policy"])
def test_the_commands_of_a_page_run(name, tmp_path, monkeypatch, capsys):
    from dp_polars._cli import main

    page = ROOT / "docs" / "howto" / f"{name}.md"
    monkeypatch.chdir(tmp_path)
    people = [i % 5000 for i in range(10_000)]
    orders = {"order_id": range(10_000), "customer_id": people, "total": [20.0] * 10_000, "email": ["a"] * 10_000}
    pl.DataFrame({**orders, "status": ["new", "paid"] * 5000}).write_parquet("orders.parquet")
    pl.DataFrame({"order_id": range(10_000), "price": [5.0] * 10_000}).write_parquet("items.parquet")
    pl.DataFrame({"user_id": people, "region": ["north", "south"] * 5000}).write_parquet("visits.parquet")
    commands = re.findall(r"^\$ (dp-polars .*?[^\\])$", "\n".join(blocks_of(page, "console")), re.DOTALL | re.M)
    assert len(commands) >= 3
    for command in commands:
        _, *words = shlex.split(command.replace("\\\n", " "))
        if " check " in command:  # what the page shows as reviewed
            policy = blocks_of(page, "toml")[0]
            Path("policy.toml").write_text(policy)
        assert main(words[: words.index(">")] if ">" in words else words) == 0, (command, capsys.readouterr().err)


@pytest.mark.slow
def test_the_statements_of_the_page_about_sql_are_answered():
    first_day, on_your_own_connection = blocks_of(ROOT / "docs" / "reference" / "sql.md", "sql")
    customers = pl.DataFrame({"customer_id": range(500), "signup": [date(2024, 1, 1)] * 500})
    days = [date(2024, 1, 2) + timedelta(days=i // 500 * 31) for i in range(1000)]
    orders = pl.DataFrame({"customer_id": [i % 500 for i in range(1000)], "day": days, "status": ["paid"] * 1000})
    con = dp.connect(None, dp.Session(epsilon=10.0, unit="customer_id", max_rows_per_group=1))
    con.register("customers", customers).register("orders", orders)
    answers = [con.sql(one, epsilon=1.0).fetchall() for one in first_day.split(";") if one.strip()]
    assert [round(answer[0][0], -2) for answer in answers[::2]] == [500, 500]
    assert abs(answers[1][0][0] - 31) <= 3

    database = duckdb.connect()
    database.sql(
        "CREATE TABLE visits AS SELECT i % 5000 AS user_id, 'north' AS region, 1 AS month, 'tea' AS product, "
        "5.0 AS amount, 5 AS qty, DATE '2024-01-01' AS day FROM range(10000) t(i)"
    )
    database.sql("CREATE TABLE votes AS SELECT true AS vote, 'red' AS party, 'north' AS region FROM range(100)")
    database.sql("CREATE TABLE responses AS SELECT true AS vote, 'north' AS region FROM range(100)")
    session = dp.Session(epsilon=10.0, delta=1e-6, unit="user_id", max_groups=1, max_rows_per_group=2)
    dp.register(database, session)
    statements = re.sub(r" *--.*", "", on_your_own_connection).split(";")
    for statement in filter(str.strip, statements):
        several = "by := 'region, month', keys := [...]"
        complete = statement.replace(several, "by := 'region', keys := ['north']")
        complete = complete.replace("[...]", "['tea', 'nuts', 'milk']")
        assert database.sql(complete).fetchall(), complete


def test_every_public_name_is_in_the_reference():
    pages = " ".join(page.read_text() for page in (ROOT / "docs" / "reference" / "python").glob("*.md"))
    public = {f"dp_polars.{name}" for name in dp.__all__} - {"dp_polars.mechanisms", "dp_polars.theory"}
    public |= {f"dp_polars.mechanisms.{name}" for name in dp.mechanisms.__all__}
    public |= {f"dp_polars.theory.{name}" for name in dp.theory.__all__}
    assert not {name for name in public if not re.search(rf":: {re.escape(name)}$", pages, re.M)}


def test_every_example_is_on_its_page():
    page = (ROOT / "docs" / "examples.md").read_text()
    assert not [path.name for path in (ROOT / "examples").glob("*.*") if f"../examples/{path.name}" not in page]


def shape_of(text):
    """Return printed text without its noise: every number is 0, and columns have no width."""
    return re.sub(r"\s+", " ", re.sub(r"[─═]+", "─", re.sub(r"-?\d+", "0", text))).strip()


@pytest.mark.slow
def test_the_readme_prints_what_it_shows():
    """Numbers are noisy, and compared only as numbers."""
    shown = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.M)
    assert len(shown) == 2
    names = {}
    for code, expected in shown:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "README.md", "exec"), names)
        assert shape_of(printed.getvalue()) == shape_of(expected)
    with pytest.raises(dp.BudgetExceeded):
        names["visits"].dp.count("region", epsilon=0.3, session=names["session"])


def test_the_readme_is_short_and_shows_an_answer_at_once():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("└") for line in lines[:25])


def test_the_source_distribution_has_the_documentation():
    project = (ROOT / "pyproject.toml").read_text()
    assert '"docs"' in project
    assert '"*.md"' in project


def test_what_is_not_there_is_noticed():
    pointers = "`tests/test_docs.py::test_of_nothing[1]`, `tests/test_docs.py`, `tests/nowhere.py::test_a`"
    assert missing_pointers(pointers) == ["tests/test_docs.py::test_of_nothing[1]", "tests/nowhere.py::test_a"]
    assert unknown_names("`dp.sums`, `dp.sum`, `df.dp.counts()`, `df.dp.count`") == ["dp.sums", "df.dp.counts"]
    page = ROOT / "docs" / "guarantees.md"
    links = (
        "[a](nowhere.md), [b](#errors), [c](#no-such-place), [d](../README.md#read-on), [e](https://nowhere.example)"
    )
    assert broken_links(page, links) == ["nowhere.md", "#no-such-place"]


def test_the_table_of_operations_is_the_list_of_operations():
    from tests.docs_tables import PAGE, SPARK_PAGE, page, spark_page

    assert SPARK_PAGE.read_text() == spark_page(SPARK_PAGE.read_text()), "run `python -m tests.docs_tables`"

    assert PAGE.read_text() == page(), "run python -m tests.docs_tables"
