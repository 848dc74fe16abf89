"""Imports follow the layers, and one name means one thing.

Lower packages never import the ones above them, and imports stand at the top of files.

`MAY_IMPORT` is the map of the layers, from the bottom to the top; ARCHITECTURE.md explains it. `EXCEPTIONS` and
`INSIDE_FUNCTIONS` list what breaks the rules today. They may only shrink: an entry that is no longer needed fails
`test_every_exception_is_still_needed`, so it gets removed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dp_polars"

FOUNDATIONS = {"errors", "_numbers"}
MATHEMATICS = FOUNDATIONS | {"_sampling", "theory", "mechanisms"}
PLANNING = MATHEMATICS | {"_session", "_expressions", "_aggregates", "_plan", "_engines"}
FEATURES = {"_choices", "_streams", "_many", "_local", "_profile"}
FRONT_ENDS = {"_frame", "_sql", "_cli", *FEATURES}

# Each package, the packages it may import, and subpackages of those that it must not import all the same.
MAY_IMPORT: dict[str, tuple[set[str], set[str]]] = {
    "errors": (set(), set()),
    "_numbers": ({"errors"}, set()),
    "_sampling": (FOUNDATIONS, set()),
    "theory": (FOUNDATIONS, set()),
    "mechanisms": (FOUNDATIONS | {"_sampling", "theory"}, set()),
    "_session": (FOUNDATIONS | {"theory"}, set()),
    "_expressions": (FOUNDATIONS, set()),
    "_engines": (FOUNDATIONS | {"_sampling", "_expressions"}, set()),
    "_aggregates": (FOUNDATIONS | {"_expressions"}, set()),
    # A plan is made before any engine runs: it may know what engines are asked, never how they answer.
    "_plan": (PLANNING | {"_display"}, {"_engines.polars", "_engines.duckdb", "_engines.spark", "_display.charts"}),
    "_release": (PLANNING, set()),
    # Features bring their own plan, mechanism and frame methods. They build on what frames share.
    "_choices": (PLANNING | FEATURES | {"_release", "_frame", "_display"}, {"_display.charts"}),
    "_streams": (PLANNING | FEATURES | {"_release", "_frame", "_display"}, {"_display.charts"}),
    "_many": (PLANNING | FEATURES | {"_release", "_frame", "_display"}, {"_display.charts"}),
    "_local": (PLANNING | FEATURES | {"_release", "_frame", "_display"}, {"_display.charts"}),
    "_profile": (PLANNING | FEATURES | {"_release", "_frame", "_display"}, set()),  # it draws its own chart
    "_frame": (PLANNING | FEATURES | {"_release", "_display"}, {"_display.charts"}),
    "_sql": (PLANNING | FEATURES | {"_release", "_frame", "_display"}, {"_display.charts"}),
    "_policy": (PLANNING | FEATURES | {"_release", "_frame", "_display", "_sql"}, {"_display.charts"}),
    "_audit": (PLANNING | FEATURES | {"_release", "_frame", "_display"}, set()),  # it draws its own chart
    "_display": (PLANNING | FEATURES | {"_release", "_audit"}, set()),
    "_cli": (PLANNING | FEATURES | {"_release", "_frame", "_display", "_sql", "_policy", "dp_polars"}, set()),
    "__main__": ({"_cli"}, set()),
    "sqlalchemy": ({"_policy", "errors"}, set()),  # a dialect, which SQLAlchemy loads
    "dbt": ({"_policy", "errors"}, set()),  # a plugin, which dbt-duckdb loads
    "ibis": ({"_policy", "_sql", "errors"}, set()),  # a backend, made of ibis
    "spark": ({"_frame"}, set()),  # it puts the namespace on Spark's frames
    "dp_polars": (PLANNING | FEATURES | {"_release", "_frame"}, set()),
}

# Imports that break the table today: (importing package, imported module or package).
EXCEPTIONS: set[tuple[str, str]] = {
    ("_display", "_frame"),  # a chart of the trade-off recognises the preview of a frame
    ("_expressions", "_engines"),  # checking an expression lowers it, to rehearse it on hostile values
    ("_session", "_display"),  # labels are escaped when they are recorded
}

# Imports inside functions: (importing package, imported package) and why they can't stand at the top of the file.
INSIDE_FUNCTIONS: dict[tuple[str, str], str] = {
    ("dp_polars", "_audit"): "loaded on first use, so that `import dp_polars` stays fast",
    ("dp_polars", "_sql"): "loads duckdb, which `import dp_polars` must not",
    ("dp_polars", "_policy"): "loads duckdb, which `import dp_polars` must not",
    ("dp_polars", "_display"): "loaded on first use; charts need the extra `plot`",
}


@cache
def modules() -> dict[str, Path]:
    """Return all modules of the package by their name below `dp_polars`; the package itself is `dp_polars`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "dp_polars"] = path
    return found


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


@pytest.fixture(scope="module", autouse=True)
def trees_are_dropped():
    """Drop the trees after the last test: they have a million nodes, which every garbage collection would visit."""
    yield
    tree_of.cache_clear()


def package_of(module: str) -> str:
    return module.split(".")[0]


def targets(node: ast.stmt, module: str, path: Path) -> list[str]:
    """Return the modules of dp_polars that one statement imports, by their name below `dp_polars`."""
    found: list[str] = []
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = ["dp_polars", *module.split(".")] if module != "dp_polars" else ["dp_polars"]
            parents = parts if path.name == "__init__.py" else parts[:-1]
            base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [base])])
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            found.append(whole if whole.removeprefix("dp_polars.") in modules() else base)
    inside = [name for name in found if name.split(".")[0] == "dp_polars"]
    return [name.removeprefix("dp_polars.") for name in inside]


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run on import: not those in functions or for type checkers only."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from statements(node.orelse)
            continue
        yield node
        for _, field in ast.iter_fields(node):
            if isinstance(field, list) and field and isinstance(field[0], ast.stmt):
                yield from statements(field)
            elif isinstance(field, list) and field and isinstance(field[0], ast.ExceptHandler):
                for handler in field:
                    yield from statements(handler.body)


@cache
def at_the_top(module: str, source: str | None = None) -> list[str]:
    """Return what a module imports from dp_polars when it is loaded."""
    path = modules()[module]
    tree = tree_of(module) if source is None else ast.parse(source)
    return [name for node in statements(tree.body) for name in targets(node, module, path)]


@cache
def inside_functions(module: str, source: str | None = None) -> list[str]:
    """Return what the functions of a module import from dp_polars."""
    path = modules()[module]
    tree = tree_of(module) if source is None else ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    nodes = {
        node for function in functions for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)
    }
    return sorted(name for node in nodes for name in targets(node, module, path))


def is_in(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def breaks_the_table(module: str, imported: str) -> bool:
    """Tell whether an import at the top of a file goes up the layers, apart from exceptions."""
    package = package_of(module)
    if package == package_of(imported):
        return False
    allowed, never = MAY_IMPORT[package]
    return not is_in(imported, allowed) or is_in(imported, never)


def excepted(module: str, imported: str) -> set[tuple[str, str]]:
    return {
        (package, other) for package, other in EXCEPTIONS if package_of(module) == package and is_in(imported, {other})
    }


def test_the_table_lists_every_package():
    assert {package_of(module) for module in modules()} == set(MAY_IMPORT)


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_lies_below_it(package):
    broken = [
        f"{module} imports {imported}"
        for module in modules()
        if package_of(module) == package
        for imported in at_the_top(module)
        if breaks_the_table(module, imported) and not excepted(module, imported)
    ]
    assert not broken


@pytest.mark.slow
def test_imports_inside_functions_have_a_reason():
    broken = [
        f"{module} imports {imported} inside a function"
        for module in modules()
        for imported in inside_functions(module)
        if (package_of(module), package_of(imported)) not in INSIDE_FUNCTIONS
    ]
    assert not broken


@pytest.mark.slow
def test_every_exception_is_still_needed():
    used = {
        exception
        for module in modules()
        for imported in at_the_top(module)
        if breaks_the_table(module, imported)
        for exception in excepted(module, imported)
    }
    assert used == EXCEPTIONS
    inside = {(package_of(module), package_of(name)) for module in modules() for name in inside_functions(module)}
    assert inside == set(INSIDE_FUNCTIONS)


def test_no_modules_import_each_other_in_a_circle():
    imports = {module: set(at_the_top(module)) & set(modules()) for module in modules()}
    while leaves := {module for module, others in imports.items() if not others & set(imports)}:
        imports = {module: others for module, others in imports.items() if module not in leaves}
    assert not imports


def definitions(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the names that a module gives to classes and types, without underscores, and whether each is a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_"), True
    for node in tree.body:
        assigned = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in assigned:
            if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", target.id):
                yield target.id.lstrip("_"), False


def taken_twice(trees: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Return the names of classes that stand for another class or type too, with the modules that define them.

    Aliases such as `Floats` may be repeated: each module may abbreviate the types of its own arrays.
    """
    places: dict[str, list[str]] = {}
    classes: set[str] = set()
    for module, tree in trees.items():
        for name, is_class in definitions(tree):
            places.setdefault(name, []).append(module)
            classes |= {name} if is_class else set()
    return {name: found for name, found in places.items() if name in classes and len(found) > 1}


@pytest.mark.slow
def test_no_two_classes_share_a_name():
    """An underscore does not tell two classes apart, and a class and an alias of a type don't share a name either."""
    assert not taken_twice({module: tree_of(module) for module in modules()})


def test_a_name_that_is_taken_twice_is_noticed():
    first = ast.parse("class Sum: ...\nFloats = list\nclass Key: ...\ndef f():\n    class Inner: ...\nLIMIT = 1")
    second = ast.parse("class _Key: ...\nFloats = tuple\nSum: type = int\nclass Inner: ...\nLIMIT = 2")
    assert set(taken_twice({"a": first, "b": second})) == {"Sum", "Key", "Inner"}


def test_what_breaks_the_rules_is_noticed():
    """The reader sees every form of import, and not what only type checkers read."""
    source = (
        "from dp_polars._sql import connection\n"
        "import dp_polars._cli.sql\n"
        "from dp_polars import _frame, errors\n"
        "try:\n    from dp_polars._choices.plan import regret\nexcept ImportError:\n    from dp_polars import _many\n"
        "if TYPE_CHECKING:\n    from dp_polars._audit.audit import audit\n"
        "def late():\n    from dp_polars._release import run\n"
    )
    module = "_plan.query"
    found = at_the_top(module, source)
    assert found == ["_sql.connection", "_cli.sql", "_frame", "errors", "_choices.plan", "_many"]
    assert [name for name in found if breaks_the_table(module, name)] == [name for name in found if name != "errors"]
    assert [name.split(".")[0] for name in inside_functions(module, source)] == ["_release"]
    assert breaks_the_table(module, "_engines.polars.rows")
    assert not breaks_the_table(module, "_engines.request")
