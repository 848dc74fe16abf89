"""The scanner finds the line of every key that tomllib finds."""

import contextlib
import tomllib

import pytest

from dp_polars._policy.lines import key_lines


def paths(plain, before=()):
    """Yield the paths of all keys, also of tables in arrays."""
    if isinstance(plain, dict):
        for name, value in plain.items():
            yield (*before, name)
            yield from paths(value, (*before, name))
    elif isinstance(plain, list):
        for value in plain:
            yield from paths(value, before)


TEXTS = {
    "dotted": ("a.b.c = 1\na . d = 2\n[x.y]\nz.w = 3", {("a", "b", "c"): 1, ("a", "d"): 2, ("x", "y", "z", "w"): 4}),
    "quoted": (
        '"a b".\'c.d\' = 1\n["e\\u0066"."g]h"]\n"#" = 2',
        {("a b", "c.d"): 1, ("ef", "g]h"): 2, ("ef", "g]h", "#"): 3},
    ),
    "arrays": ("a = [\n  1, # ]\n  [2,\n 3],\n]\nb = 2", {("a",): 1, ("b",): 6}),
    "inline": ("a = { b = 1, c = { d = [1, 2] }, 'e' = 3 }\nf = 1", {("a", "c", "d"): 1, ("a", "e"): 1, ("f",): 2}),
    "tables in arrays": ("a = [\n { b = 1 },\n { c = 2 },\n]\nd = 1", {("a", "b"): 2, ("a", "c"): 3, ("d",): 5}),
    "texts over lines": (
        'a = """\n[x]\nb = 1\\"""" \nc = \'\'\'\n"""\n\'\'\'\nd = 2',
        {("a",): 1, ("c",): 4, ("d",): 7},
    ),
    "quotes at the end": ('a = """x"""""\nb = 2', {("a",): 1, ("b",): 2}),
    "comments": ("# a = 1\n\n  a = 2 # b = 3\n[ t ] # [u]\nb = '#'", {("a",): 3, ("t",): 4, ("t", "b"): 5}),
    "windows": ("a = 1\r\n[b]\r\nc = 2\r\n", {("a",): 1, ("b",): 2, ("b", "c"): 3}),
    "arrays of tables": ("[[a]]\nb = 1\n[[a]]\nc = 1", {("a",): 1, ("a", "b"): 2, ("a", "c"): 4}),
    "dates and numbers": ("a = 1979-05-27 07:32:00\nb = +1_000.5e-3\nc = inf", {("a",): 1, ("b",): 2, ("c",): 3}),
}


@pytest.mark.parametrize(("text", "wanted"), TEXTS.values(), ids=TEXTS)
def test_every_key_has_its_line(text, wanted):
    found = key_lines(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    assert {path: found[path] for path in wanted} == wanted


@pytest.mark.parametrize("text", ["a = 'b", "a = [1", "[a", "a", "= 1", '"'])
def test_a_text_that_is_no_toml_ends(text):
    """The scanner only sees texts that tomllib accepts, but it ends on any text."""
    with contextlib.suppress(ValueError):
        key_lines(text)
