"""Rows with the same normal form are the same rows, however they were written, and other rows have another form."""

import itertools

import polars as pl
import pytest

from dp_polars._engines.normal_form import normal_form
from dp_polars._engines.polars.scan import lazy_rows, polars_rows
from dp_polars._expressions import Column, apply, constant
from dp_polars._plan.digest import public_digest

FRAME = pl.DataFrame(
    {
        "a": [None if i % 11 == 0 else i % 5 - 1 for i in range(60)],
        "b": [None if i % 7 == 0 else i % 4 for i in range(60)],
        "c": [i % 3 == 0 if i % 13 else None for i in range(60)],
    },
    schema={"a": pl.Int64, "b": pl.Int64, "c": pl.Boolean},
)
PUBLIC = pl.DataFrame({"k": [0, 1, 2], "v": [10, 11, None], "w": [5, 6, 7]})
TWICE = pl.DataFrame({"k": [0, 1, 1], "v": [20, 21, 22], "w": [1, 2, 3]})


def column(rows, name):
    return Column(name, rows.schema[name])


def above(rows, name, number):
    return apply("gt", column(rows, name), constant(number, pl.Int64()))


def made(rows, **columns):
    return rows.make({name: make(rows) for name, make in columns.items()})


STEPS = {
    "a > 0": lambda r: r.filter(above(r, "a", 0)),
    "a > 1": lambda r: r.filter(above(r, "a", 1)),
    "b > 0 and a > 0": lambda r: r.filter(apply("and", above(r, "b", 0), above(r, "a", 0))),
    "b > 0": lambda r: r.filter(above(r, "b", 0)),
    "b > 0 or a > 0": lambda r: r.filter(apply("or", above(r, "b", 0), above(r, "a", 0))),
    "true": lambda r: r.filter(constant(True, pl.Boolean())),
    "false": lambda r: r.filter(constant(False, pl.Boolean())),
    "c": lambda r: r.filter(column(r, "c")),
    "not c": lambda r: r.filter(apply("not", column(r, "c"))),
    "a = b": lambda r: made(r, a=lambda r: column(r, "b")),
    "swap": lambda r: made(r, a=lambda r: column(r, "b"), b=lambda r: column(r, "a")),
    "a = a + 1": lambda r: made(r, a=lambda r: apply("add", column(r, "a"), constant(1, pl.Int64()))),
    "other": lambda r: made(r, other=lambda r: apply("add", column(r, "a"), column(r, "b"))),
    "reorder": lambda r: r.keep(["c", "b", "a"]),
    "inner": lambda r: r.lookup(PUBLIC, on=[("a", "k")], how="inner", columns={"v": "b"}),
    "inner w": lambda r: r.lookup(PUBLIC, on=[("a", "k")], how="inner", columns={"w": "b"}),
    "left": lambda r: r.lookup(PUBLIC, on=[("a", "k")], how="left", columns={"v": "b"}),
    "semi": lambda r: r.lookup(PUBLIC, on=[("a", "k")], how="semi", columns={}),
    "anti": lambda r: r.lookup(PUBLIC, on=[("a", "k")], how="anti", columns={}),
    "twice": lambda r: r.lookup(TWICE, on=[("a", "k")], how="inner", columns={}, unique=False),
    "twice w": lambda r: r.lookup(TWICE, on=[("a", "k")], how="left", columns={"w": "b"}, unique=False),
}


def after(names):
    rows = polars_rows(FRAME.lazy())
    for name in names:
        rows = STEPS[name](rows)
    return rows.keep(["a", "b", "c"])


def form(rows):
    found = normal_form(rows, public_digest)
    return str(found)


@pytest.mark.slow
def test_equal_forms_give_equal_rows():
    """All sequences of up to two steps, and many of three: rows with one form are the same, in some order."""
    names = [*itertools.chain(*(itertools.product(STEPS, repeat=length) for length in (0, 1, 2)))]
    names += list(itertools.product(list(STEPS)[::3], repeat=3))
    by_form = {}
    for steps in names:
        by_form.setdefault(form(after(steps)), []).append(steps)
    shared = [own for own in by_form.values() if len(own) > 1]
    assert sum(map(len, shared)) > 100  # the form does forget what doesn't matter
    for own in shared:
        frames = [lazy_rows(after(steps)).collect().sort(pl.all()) for steps in own]
        for steps, frame in zip(own, frames, strict=True):
            assert frame.equals(frames[0]), (own[0], steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["b > 0 and a > 0"], ["a > 0", "b > 0"]),
        (["a > 0", "b > 0"], ["b > 0", "true", "reorder", "a > 0", "a > 0"]),
        (["other", "a > 0"], ["a > 0"]),
        (["swap", "swap"], []),
        (["a > 0", "a = b"], ["a > 0", "other", "a = b"]),
        (["inner", "semi"], ["semi", "inner"]),
    ],
)
def test_what_does_not_change_rows_does_not_change_the_form(one, other):
    assert form(after(one)) == form(after(other))


def test_every_step_but_the_empty_ones_has_a_form_of_its_own():
    empty = {"true", "other", "reorder"}
    forms = {form(after([name])) for name in STEPS if name not in empty}
    assert len(forms) == len(STEPS) - len(empty)
    assert form(after([])) not in forms
    assert {form(after([name])) for name in empty} == {form(after([]))}


def test_a_step_before_another_differs_from_one_after_it():
    for one, other in (("a > 0", "a = a + 1"), ("a > 0", "swap"), ("a = b", "swap"), ("inner", "b > 0")):
        assert form(after([one, other])) != form(after([other, one]))


def test_the_form_does_not_grow_with_steps_that_use_a_column_twice():
    rows = polars_rows(FRAME.lazy())
    for _ in range(200):
        rows = rows.make({"a": apply("add", column(rows, "a"), column(rows, "a"))})
    assert len(form(rows)) < 1000


def test_types_and_constants_count_to_the_last_bit():
    rows = polars_rows(FRAME.lazy())
    numbers = [0.1, 0.1 + 2**-55, -0.1, 1.0]
    made_of = [rows.make({"x": constant(number, pl.Float64())}) for number in numbers]
    made_of += [rows.make({"x": constant(1, dtype)}) for dtype in (pl.Int64(), pl.Int32())]
    made_of += [
        rows.make({"x": constant("a", pl.String())}),
        rows.make({"x": apply("cast", column(rows, "a"), to=pl.Int8())}),
    ]
    many = [str(i) for i in range(1000)]
    for categories in (many, [*many[:500], "x", *many[501:]]):
        kind = polars_rows(pl.LazyFrame(schema={"x": pl.Enum(categories)}))
        made_of.append(kind)
    assert len({form(one) for one in made_of}) == len(made_of)
