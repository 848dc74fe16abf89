"""All mistakes of a policy's text are told at once, each with its line and what to write."""

import pickle

import pytest

import dp_polars as dp
from dp_polars._policy.document import read_document
from tests.policy.shop import POLICY


def mistakes(text):
    with pytest.raises(dp.PolicyError) as refused:
        read_document(text, "policy.toml")
    assert refused.value.code == "invalid-policy"
    return refused.value


def changed(old, new):
    assert old in POLICY
    return POLICY.replace(old, new, 1)


def test_the_policy_of_the_shop_is_read():
    document = read_document(POLICY, "policy.toml")
    assert list(document.tables) == ["orders", "items", "regions"]
    assert document.tables["orders"].columns["total"].bounds == (0, 100)
    assert document.line("tables", "items", "through") == 31


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("epsilon = 100.0", "epsilom = 1.0", 4, "Did you mean epsilon?"),
        ("epsilon = 100.0", "epsilon = inf", 4, "must be finite"),
        ("epsilon = 100.0", "epsilon = nan", 4, "must be finite"),
        ("epsilon = 100.0", "epsilon = 1e300", 4, "too large"),
        ("epsilon = 100.0", "epsilon = 1e-300", 4, "too close to 0"),
        ("epsilon = 100.0", "epsilon = true", 4, "must be a number"),
        ("queries = 100", "queries = 0", 5, "whole number"),
        ("queries = 100", "largest_share = 1.5", 5, "between 0 and 1"),
        ("queries = 100", "largest_share = 0.1\nsmallest_share = 0.2", 6, "nothing could be asked"),
        ('unit = "customer_id"', 'unti = "customer_id"', 1, "Did you mean unit?"),
        ('unit = "customer_id"', 'unit = "customer_id"\nquestions = ["cuont"]', 2, "Did you mean count?"),
        ("max_groups = 2", "max_gruops = 2", 10, "Did you mean max_groups?"),
        ("max_groups = 2", "max_groups = 2.5", 10, "whole number"),
        ("max_groups = 2", "max_groups = 10000000000000", 10, "whole number"),
        ("public = false", "private = true", 7, "public = false, or public = true"),
        ("bounds = [0, 100]", "bounds = [100, 0]", 14, "below the second"),
        ("bounds = [0, 100]", "bounds = [0, inf]", 14, "finite"),
        ("bounds = [0, 100]", "bounds = [\n0,\n1e99]", 14, "too large"),
        ("bounds = [0, 100]", "bounds = 5", 14, "bounds = [0, 100]"),
        ('keys = ["new", "paid"]', 'keys = ["new", "new"]', 20, "twice"),
        ('keys = ["new", "paid"]', 'keys = ["new", 1]', 20, "one type"),
        ('table = "regions"', 'table = "orders"', 23, "no public table orders"),
        ("ask = false", "ask = false\nbounds = [0, 1]", 25, "may not be asked"),
        ("ask = false", "aks = false", 26, "Did you mean ask?"),
        ('through = "orders"', 'through = "order"', 31, "Did you mean orders?"),
        ('on = "order_id"', "", 31, "in place of unit"),
        ("[tables.items]", "[tables.Orders]", 28, "shadow each other"),
        ("[tables.items]", '[tables."оrders"]', 28, "look-alike"),
        ("[tables.items]", "[tables.dp_items]", 28, "dp_"),
        ("[tables.items.columns.price]", "[tables.items.columns.pricе]", 36, "at line 36"),
        ("[tables.items.columns.price]", '[tables.items.columns."pricе"]', 36, "look alike"),
        ("public = true", "public = true\nmax_groups = 3", 42, "means nothing"),
        ('unit = "customer_id"\n', "", 1, "Who is protected?"),
        ("epsilon = 100.0\nqueries = 100\n", "", 3, "needs a budget"),
        ('source = "items.parquet"\n', "", 28, "Where are the rows of items?"),
        ("public = true", "", 39, "Are the rows of regions private?"),
        ('keys = ["new", "paid"]', 'keys = ["new", "paid"', 20, "not TOML"),
        ('keys = ["new", "paid"]', 'keys = [\n"new",\n"paid",\n]\nask = "', 24, "not TOML"),
        ("public = true", 'public = """', 41, "not TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(old, new, line, words):
    problems = mistakes(changed(old, new)).problems
    assert any(problem.line == line and words in problem.text for problem in problems), problems


def test_all_mistakes_are_told_at_once():
    text = changed("queries = 100", "quieries = 100").replace("max_groups", "groups").replace("[0, 50]", "[50, 0]")
    error = mistakes(text)
    assert [problem.line for problem in error.problems] == [5, 10, 37]
    assert str(error).startswith("The policy policy.toml has 3 mistakes:\n  line 5: ")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_key_that_stands_twice_is_refused():
    (problem,) = mistakes(changed("queries = 100", "epsilon = 2.0")).problems
    assert "at line 5" in problem.text


@pytest.mark.parametrize("text", ["x = " + "9" * 5000, "x = " + "[" * 5000, "x = " + "a" * 2_000_000])
def test_absurd_texts_are_refused(text):
    mistakes(text)


def test_columns_that_sql_can_not_tell_apart_are_refused():
    text = changed("[tables.orders.columns.weight]", "[tables.orders.columns.TOTAL]")
    assert "shadow each other" in str(mistakes(text))


def test_the_question_mark_of_a_draft_is_no_key():
    assert "The draft's question mark is still here" in str(mistakes(changed('["new", "paid"]', '["?"]')))
