"""The engine protocol: what may import what, and that a new engine is one more entry in the list."""

import ast
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dp
from dp_polars._engines import registry
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._engines.polars.scan import PolarsSource
from dp_polars._engines.rows import PrivateRows

PACKAGE = Path(dp.__file__).parent
ENGINE_MODULES = sorted((PACKAGE / "_engines").rglob("*.py"))
PLANNING = sorted({*(PACKAGE / "_plan").rglob("*.py"), *PACKAGE.rglob("plan.py"), *PACKAGE.rglob("*_plan.py")})


def name_of(path):
    """Return the dotted name of a module, for example `_engines.polars.scan`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path):
    """Return what a module imports from the package, without `dp_polars.`; imported names are included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dp_polars"):
            module = node.module.removeprefix("dp_polars").removeprefix(".")
            found |= {f"{module}.{one.name}".removeprefix(".") for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.name.removeprefix("dp_polars.") for one in node.names if one.name.startswith("dp_polars")}
    return found


def is_within(name, *packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@pytest.mark.slow
@pytest.mark.parametrize("path", ENGINE_MODULES, ids=name_of)
def test_engines_import_no_front_end_and_nothing_that_plans_or_charges(path):
    for name in imports_of(path):
        assert is_within(name, "_engines", "_expressions", "_sampling", "errors"), name


@pytest.mark.slow
@pytest.mark.parametrize("path", ENGINE_MODULES, ids=name_of)
def test_only_the_registry_knows_all_engines(path):
    own, names = name_of(path), imports_of(path)
    if own != "_engines.registry":
        assert not any(is_within(name, "_engines.registry") for name in names)
    shared = ("_engines.request", "_engines.rows", "_engines.base", "_engines.workers")
    if own in shared or is_within(own, "_engines.bounding"):
        assert not any(is_within(name, "_engines.polars", "_engines.duckdb", "_engines.spark") for name in names)
    if is_within(own, "_engines.bounding"):
        assert all(is_within(name, "_engines.bounding", "_engines.request", "_engines.workers") for name in names)
    if is_within(own, "_engines.polars"):
        assert not any(is_within(name, "_engines.duckdb", "_engines.spark") for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("path", ENGINE_MODULES, ids=name_of)
def test_imports_stand_at_the_top_of_the_file(path):
    tree = ast.parse(path.read_text())
    top = {node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)}
    assert {node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)} == top


@pytest.mark.slow
@pytest.mark.parametrize("path", PLANNING, ids=name_of)
def test_planning_imports_no_engine(path):
    for name in imports_of(path):
        assert not is_within(name, "_engines") or is_within(name, "_engines.request", "_engines.base"), name


class Listed:
    """Rows as Python dictionaries: a source that no engine of the package reads."""

    def __init__(self, rows):
        self.rows, self.schema = rows, pl.DataFrame(rows).schema


class ListEngine(PolarsEngine):
    """An engine for `Listed`. It hands the rows over to Polars and notes what it was asked."""

    def __init__(self):
        self.asked = []

    def reads(self, source):
        return isinstance(source, Listed)

    def identify(self, origin):
        return None

    def _handed_over(self, rows, what):
        self.asked.append(what)
        return replace(rows, source=PolarsSource(pl.LazyFrame(rows.source.rows)))

    def aggregate(self, rows, request, *, parts=1):
        return super().aggregate(self._handed_over(rows, "aggregate"), request, parts=parts)

    def snapshot(self, rows, units, bits, **caps):
        return super().snapshot(self._handed_over(rows, "snapshot"), units, bits, **caps)

    def read(self, rows, **columns):
        return super().read(self._handed_over(rows, "read"), **columns)


def test_a_new_engine_is_one_more_entry_in_the_list(monkeypatch):
    engine = ListEngine()
    monkeypatch.setattr(registry, "ENGINES", (*registry.ENGINES, engine))
    rows = [{"user": number, "x": number % 10} for number in range(1000)]
    with pytest.warns(dp.DPWarning):
        session = dp.Session(epsilon=10**6, unit="user", max_rows_per_group=1)
    frame = dp.private(pl.DataFrame(rows), session)
    frame._rows = PrivateRows(Listed(rows))
    assert frame.filter(pl.col("x") < 5).count(epsilon=10**4).item() == 500
    assert frame.above_threshold(200, epsilon=10**4).ask(pl.col("x") == 3) is False
    best = frame.select_best([1, 3, 5], lambda bound: pl.col("x") <= bound, bounds=(0, 1), epsilon=10**4)
    assert best.height == 1
    assert engine.asked == ["aggregate", "snapshot", "read"]


def test_rows_that_no_engine_reads_are_refused():
    with pytest.raises(TypeError, match="no engine reads a Listed"):
        registry.engine_for(PrivateRows(Listed([{"x": 1}])))
