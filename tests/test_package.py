"""The package itself: what it imports, what it needs, what nobody can reach."""

import ast
import inspect
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dp

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "dp_polars").rglob("*.py"))


@pytest.mark.slow
def test_importing_loads_neither_duckdb_nor_an_extra():
    program = "import sys, dp_polars; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = ast.literal_eval(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    )
    assert not {"duckdb", "scipy", "dp_accounting", "altair", "pyspark", "hypothesis", "pytest"} & set(loaded)


def test_the_required_four_are_the_only_requirements():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(name.split(">")[0] for name in project["dependencies"]) == ["duckdb", "numpy", "polars", "pyarrow"]
    assert (ROOT / "dp_polars" / "py.typed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_draws_randomness_but_from_the_system(path):
    """numpy's generators and Python's `random` are for tests. `secrets` names files, `uniform` reads system bits."""
    text = path.read_text()
    if "random" not in text.casefold():  # then no name in it can be one of those below
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            assert not (node.attr == "random" and getattr(node.value, "id", "") in {"np", "numpy"}), path
            assert node.attr != "urandom" or path.parts[-2:] == ("_sampling", "uniform.py")
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            assert not {"random", "numpy.random"} & set(modules), path


def test_no_public_function_takes_a_seed_or_a_source_of_bits():
    public = [
        *(getattr(dp.mechanisms, name) for name in dp.mechanisms.__all__),
        *(getattr(dp.theory, name) for name in dp.theory.__all__),
        *(getattr(dp, name) for name in dp.__all__),
        *(member for _, member in inspect.getmembers(dp.Session, inspect.isfunction)),
    ]
    forbidden = {"seed", "source", "bits", "rng", "random_state", "generator", "debug", "noise_off", "no_noise"}
    dictionaries = (dp.Options, dp.OpeningOptions, dp.ChoiceOptions, dp.ResponseOptions, dp.ProfileOptions)  # by type
    for options in dictionaries:
        assert not forbidden & set(options.__annotations__)
    for thing in public:
        if thing in dictionaries:
            continue
        if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception)):
            assert not forbidden & set(inspect.signature(thing).parameters), thing


def test_every_public_name_has_a_docstring_with_an_example():
    for module in (dp.mechanisms, dp.theory):
        for name in module.__all__:
            if callable(getattr(module, name)):
                assert ">>>" in (inspect.getdoc(getattr(module, name)) or ""), name
    for name in dp.mechanisms.__all__:
        documentation = getattr(dp.mechanisms, name).__doc__
        assert (
            "harges no" in documentation
            or "error" in name
            or "regret" in name
            or name.endswith(("epsilon", "rho", "frequencies"))
        )


NEEDS_NO_EXAMPLE = {
    # What Python's database API asks for, as everywhere.
    "GuardedConnection": {
        "arrow",
        "close",
        "commit",
        "cursor",
        "description",
        "df",
        "fetchmany",
        "fetchone",
        "rollback",
    },
    # `close` says it all; the others are for the package's own use or shown by what they return.
    "Session": {"check", "close", "defaults", "describe", "plan", "releases", "remember", "terms"},
    "Release": {"finished_at", "id", "label", "reserved_at"},
    "Reservation": {"fail"},
    "Stream": {"plan"},
    "OnlineQueries": {"plan", "size"},
}
CLASSES = (
    dp.PrivateFrame, type(dp.private(pl.DataFrame()).preview), dp.Session, dp.Stream, dp.OnlineQueries, dp.Synthesis,
    dp.Release, dp.Reservation, dp.GuardedConnection,
)  # fmt: skip


def examples_in(thing):
    """Return the lines of code in a docstring."""
    return "\n".join(re.findall(r"^\s*(?:>>>|\.\.\.)(.*)$", inspect.getdoc(thing) or "", flags=re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(dp.__all__))
def test_every_name_of_the_package_has_a_docstring_with_an_example(name):
    thing = getattr(dp, name)
    documentation = inspect.getdoc(thing) or ""
    assert documentation
    plain_error = inspect.isclass(thing) and issubclass(thing, Exception) and thing is not dp.BudgetExceeded
    if callable(thing) and not plain_error:
        assert examples_in(thing)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_member_has_an_example_or_its_class_shows_it(kind):
    """A member that takes the arguments of another one points there."""
    shown = examples_in(kind)
    for name, member in inspect.getmembers(kind, lambda member: not inspect.isclass(member)):
        documentation = inspect.getdoc(member) or ""
        if name.startswith("_") or name in NEEDS_NO_EXAMPLE.get(kind.__name__, ()):
            continue
        refers = re.search(r"([Aa]rguments are those of|another name for) `\w+`", documentation)
        assert documentation, name
        assert examples_in(member) or refers or re.search(rf"\.{name}\b", shown), name


@pytest.mark.slow
def test_docstrings_have_numpydoc_sections():
    """A section has a line of dashes as long as its title; a class or function with an example has it in one."""
    titles = "Parameters|Returns|Yields|Attributes|Notes|Examples"
    for path in SOURCES:
        text = path.read_text()
        if not re.search(rf"^ *({titles})$", text, re.MULTILINE):  # parsing takes long
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                continue
            lines = (ast.get_docstring(node) or "").splitlines()
            for line, following in itertools.pairwise(lines):
                if re.fullmatch(titles, line):
                    assert following == "-" * len(line), (path, node.name)


def test_every_error_is_a_dp_error():
    for name in dp.__all__:
        thing = getattr(dp, name)
        if inspect.isclass(thing) and issubclass(thing, Exception) and thing is not dp.DPWarning:
            assert issubclass(thing, dp.DPError)
