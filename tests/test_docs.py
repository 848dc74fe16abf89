"""The documentation is true: what it points to exists, and its first page prints what it shows."""

import ast
import contextlib
import io
import re
from functools import cache
from pathlib import Path

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
    found, inside = set(), ""
    for indent, kind, name in re.findall(r"^( *)(def|class) (\w+)", (ROOT / path).read_text(), re.MULTILINE):
        if kind == "class":
            inside = f"{name}::"
        elif name.startswith("test_"):
            found.add(inside + name if indent else name)
    return found


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
    text = page.read_text()
    if not NAME.search(text):  # parsing takes long
        return
    nodes = ast.walk(ast.parse(text))
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
