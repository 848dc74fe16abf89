"""Every error has a stable code, and code chooses by it, never by the text of a message."""

import ast
import pickle
import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import dp_polars as dp
from dp_polars import errors
from dp_polars._cli.exit_codes import HINTS, FileProblem
from dp_polars._session.ledger import Closing

PACKAGE = Path(dp.__file__).parent
CLASSES = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, dp.DPError)]
KEBAB = re.compile(r"[a-z]+(-[a-z]+)*")


def trees_with(words):
    """Yield the paths and syntax trees of the modules whose text matches a pattern: parsing them all takes long."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if re.search(words, text):
            yield path.relative_to(PACKAGE).as_posix(), ast.parse(text)


@cache
def codes():
    """Return every code that an error of the library can have: those of classes and of places that raise."""
    nodes = (node for _, tree in trees_with(r"\bcode *=") for node in ast.walk(tree))
    keywords = (node for node in nodes if isinstance(node, ast.keyword))
    written = [node.value.value for node in keywords if node.arg == "code" and isinstance(node.value, ast.Constant)]
    return [*written, *(one.code for one in (*CLASSES, FileProblem))]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_of_errors_has_its_own_code(kind):
    assert KEBAB.fullmatch(kind.code)
    assert [one for one in CLASSES if one.code == kind.code] == [kind]


@pytest.mark.slow
def test_codes_are_short_words_with_hyphens():
    wrong = [code for code in codes() if code is not None and not (KEBAB.fullmatch(code) and len(code) <= 30)]
    assert not wrong


def test_a_code_can_be_given_where_an_error_is_raised():
    error = dp.InvalidParameterError("No unit.", code="unit-missing")
    assert (str(error), error.code, dp.InvalidParameterError("No.").code) == (
        "No unit.",
        "unit-missing",
        "invalid-parameter",
    )


@pytest.mark.parametrize(
    "error",
    [
        dp.LedgerError("No ledger.", code="ledger-not-found"),
        dp.BudgetExceeded(requested="1", remaining="0", largest_affordable="nothing"),
        dp.SessionClosed(Closing(1, "failed", "today", None, None)),
    ],
    ids=lambda error: error.code,
)
def test_an_error_keeps_its_code_in_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.code) == (type(error), str(error), error.code)


@pytest.mark.slow
def test_the_list_of_codes_has_every_code_that_is_raised_and_no_other():
    assert {code for code in codes() if code is not None} == set(get_args(errors.Code))


@pytest.mark.slow
def test_every_hint_of_the_command_line_is_for_a_code_that_is_raised():
    assert set(HINTS) <= set(codes())


SEARCHES = ("startswith", "endswith", "find", "index", "match", "search", "fullmatch", "partition", "count")


def exceptions_of(scope):
    """Return the names that stand for exceptions in an `except` block or in a function's parameters."""
    if isinstance(scope, ast.ExceptHandler):
        return {scope.name} - {None}
    if not isinstance(scope, ast.FunctionDef):
        return set()
    kinds = re.compile("Error|Exception|NotAllowed|Exceeded|Closed|Mismatch|Problem")
    parameters = [one for one in scope.args.args if one.annotation is not None]
    return {one.arg for one in parameters if kinds.search(ast.unparse(one.annotation))}


def is_text_of(node, names):
    """Return whether a piece of code contains `str(error)` or `error.args` for one of the names of exceptions."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and ast.unparse(one.func) in ("str", "repr"):
            found = one.args
        else:
            found = [one.value] if isinstance(one, ast.Attribute) and one.attr == "args" else []
        if any(isinstance(own, ast.Name) and own.id in names for own in found):
            return True
    return False


def choices_by_text(tree):
    """Return the lines that compare or search the text of an exception, such as `"x" in str(error)`."""
    lines = set()
    for scope in ast.walk(tree):
        names = exceptions_of(scope)
        if not names:
            continue
        assigned = [one for one in ast.walk(scope) if isinstance(one, ast.Assign) and is_text_of(one.value, names)]
        texts = {target.id for one in assigned for target in one.targets if isinstance(target, ast.Name)}
        for node in ast.walk(scope):
            if isinstance(node, ast.Compare):
                looked_at = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
                looked_at = [node.func.value, *node.args]
            else:
                continue
            if any(is_text_of(one, names) or (isinstance(one, ast.Name) and one.id in texts) for one in looked_at):
                lines.add(node.lineno)
    return lines


@pytest.mark.slow
def test_no_module_chooses_by_the_text_of_an_error():
    words = r"\b(str|repr)\(|\.args\b"  # what `is_text_of` looks for
    found = {module: choices_by_text(tree) for module, tree in trees_with(words)}
    assert not {module: lines for module, lines in found.items() if lines}


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "try:\n    f()\nexcept ValueError as error:\n    g() if 'no unit' in str(error) else None",
        "try:\n    f()\nexcept ValueError as error:\n    text = str(error)\n    text.startswith('no')",
        "def hint(error: DPError):\n    text = str(error)\n    return next(x for s, x in HINTS if s in text)",
        "def hint(error: Exception):\n    return re.search('unit', error.args[0])",
    ],
)
def test_a_choice_by_text_would_be_found(source):
    assert choices_by_text(ast.parse(source))
