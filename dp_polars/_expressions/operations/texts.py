"""Texts: search, replacement, slices and parsing."""

from __future__ import annotations

import re
from typing import Any

import polars as pl

from dp_polars._expressions.operations.base import (
    CUT,
    INT,
    TEXT,
    TRUTH,
    apply,
    as_text,
    bad,
    check_integer,
    check_text,
    make,
    operation,
)
from dp_polars._expressions.tree import Constant, Expression
from dp_polars._expressions.types import MOST_INSERTED, MOST_TEXT, TEXTS, kind_of


def _of_text(name: str, dtype: pl.DataType, reason: str) -> None:
    def build(x: Expression) -> Expression:
        return make(name, (as_text(x, name),), dtype)

    operation(name, reason, spoken=f"str.{name}")(build)


for _name in ("lower", "upper", "title", "reverse"):
    _of_text(_name, TEXT, CUT)
for _name in ("len_chars", "len_bytes"):
    _of_text(_name, INT, "Every text has a length.")


@operation(
    "strip",
    "It removes characters of a public set from the ends, and the result may be empty.",
    spoken="str.strip_chars",
    samples=({"chars": None, "side": "both"}, {"chars": "ab", "side": "start"}, {"chars": " ", "side": "end"}),
)
def _strip(x: Expression, *, chars: str | None = None, side: str = "both") -> Expression:
    if chars is not None:
        check_text(chars, "str.strip_chars", "characters")
    if side not in ("both", "start", "end"):
        raise bad("str.strip_chars", f"has no side {side!r}", "Use both, start or end.")
    return make("strip", (as_text(x, "str.strip_chars"),), TEXT, chars=chars, side=side)


@operation("strip_prefix", "It removes a public prefix where there is one.", samples=({"prefix": "a"},))
def _strip_prefix(x: Expression, *, prefix: str) -> Expression:
    check_text(prefix, "str.strip_prefix", "a prefix")
    return make("strip_prefix", (as_text(x, "str.strip_prefix"),), TEXT, prefix=prefix)


@operation("strip_suffix", "It removes a public suffix where there is one.", samples=({"suffix": "b"},))
def _strip_suffix(x: Expression, *, suffix: str) -> Expression:
    check_text(suffix, "str.strip_suffix", "a suffix")
    return make("strip_suffix", (as_text(x, "str.strip_suffix"),), TEXT, suffix=suffix)


def _edge(name: str) -> None:
    def build(x: Expression, y: Expression) -> Expression:
        return make(name, (as_text(x, f"str.{name}"), as_text(y, f"str.{name}")), TRUTH)

    operation(name, "Any two texts can be compared byte by byte.", spoken=f"str.{name}", arity=2)(build)


_edge("starts_with")
_edge("ends_with")

_PATTERNS = ({"pattern": "a", "literal": True}, {"pattern": "[a-z]+(.)", "literal": False})


def _pattern(value: Any, literal: bool, spoken: str) -> str:
    found = check_text(value, spoken, "a pattern")
    if not literal and re.search(r"(?<!\\)(?:\\\\)*\\C", found):
        raise bad(spoken, r"uses \C, which splits characters", "Use a dot.")
    if not literal and re.search(r"\(\?[a-zA-Z]*-?[a-zA-Z]*-[a-zA-Z]*u", found):
        raise bad(spoken, "switches Unicode off, which splits characters", "Leave (?-u) out.")
    return found


def _matching(name: str, dtype: pl.DataType, reason: str) -> None:
    def build(x: Expression, *, pattern: str, literal: bool = False) -> Expression:
        _pattern(pattern, literal, f"str.{name}")
        text = as_text(x, f"str.{name}")
        return make(name, (text,), dtype, pattern=pattern, literal=bool(literal))

    operation(name, reason, spoken=f"str.{name}", samples=_PATTERNS)(build)


_SEARCH = "A public pattern, which is compiled beforehand, is searched for in linear time."
_matching("contains", TRUTH, _SEARCH)
_matching("count_matches", INT, _SEARCH)
_matching("find", INT, f"{_SEARCH} It returns the number of bytes before the match, or null without a match.")


@operation(
    "extract",
    f"{_SEARCH} It returns null without a match, and at most {MOST_TEXT:,} characters.",
    spoken="str.extract",
    samples=({"pattern": "([a-z]+)", "group": 1}, {"pattern": "b", "group": 0}),
)
def _extract(x: Expression, *, pattern: str, group: int = 1) -> Expression:
    _pattern(pattern, False, "str.extract")
    check_integer(group, 0, 100, "str.extract", "a group")
    return make("extract", (as_text(x, "str.extract"),), TEXT, pattern=pattern, group=group)


@operation(
    "replace",
    f"{CUT} A replacement has at most {MOST_INSERTED} characters.",
    spoken="str.replace",
    samples=(
        {"pattern": "a", "value": "bb", "literal": True, "n": -1},
        {"pattern": "([a-z])", "value": "<$1>", "literal": False, "n": 1},
    ),
)
def _replace(x: Expression, *, pattern: str, value: str, literal: bool = False, n: int = -1) -> Expression:
    _pattern(pattern, literal, "str.replace")
    check_text(value, "str.replace", "a replacement", MOST_INSERTED)
    if not literal and value.count("$") > 4:
        raise bad("str.replace", "inserts more than four groups", "Use fewer groups in the replacement.")
    if n not in (1, -1):
        raise bad("str.replace", "replaces either the first match or all of them", "Use `replace` or `replace_all`.")
    text = as_text(x, "str.replace")
    return make("replace", (text,), TEXT, pattern=pattern, value=value, literal=bool(literal), n=n)


@operation(
    "slice",
    "A slice outside the text is empty.",
    spoken="str.slice",
    samples=({"offset": 0, "length": 2}, {"offset": -2, "length": None}, {"offset": 1, "length": None}),
)
def _slice(x: Expression, *, offset: int, length: int | None = None) -> Expression:
    check_integer(offset, -(1 << 31), 1 << 31, "str.slice", "an offset")
    if length is not None:
        check_integer(length, 0, 1 << 31, "str.slice", "a length")
    return make("slice", (as_text(x, "str.slice"),), TEXT, offset=offset, length=length)


def _padding(name: str) -> None:
    def build(x: Expression, *, length: int, fill: str = " ") -> Expression:
        check_integer(length, 0, 1000, f"str.{name}", "a length")
        if not isinstance(fill, str) or len(fill) != 1:
            raise bad(f"str.{name}", "needs a single fill character", "Write it as a string of one character.")
        return make(name, (as_text(x, f"str.{name}"),), TEXT, length=length, fill=fill)

    samples = ({"length": 5, "fill": "0"}, {"length": 3, "fill": "é"})
    operation(name, f"{CUT} The length is public.", spoken=f"str.{name}", samples=samples)(build)


_padding("pad_start")
_padding("pad_end")


@operation("zfill", f"{CUT} The length is public.", spoken="str.zfill", samples=({"length": 5},))
def _zfill(x: Expression, *, length: int) -> Expression:
    check_integer(length, 0, 1000, "str.zfill", "a length")
    return make("zfill", (as_text(x, "str.zfill"),), TEXT, length=length)


@operation(
    "concat",
    CUT,
    spoken="concat_str",
    arity=2,
    samples=({"separator": "", "ignore_nulls": False}, {"separator": "-", "ignore_nulls": True}),
)
def _concat(*given: Expression, separator: str = "", ignore_nulls: bool = False) -> Expression:
    check_text(separator, "concat_str", "a separator", MOST_INSERTED)
    if not given:
        raise bad("concat_str", "has no arguments", "Name a column.")
    texts = [_written(value) for value in given]
    return make("concat", texts, TEXT, separator=separator, ignore_nulls=bool(ignore_nulls))


def _written(value: Expression) -> Expression:
    """Return a value as text."""
    if kind_of(value.dtype) in TEXTS or kind_of(value.dtype) == "null":
        return as_text(value, "concat_str")
    if isinstance(value, Constant) and kind_of(value.dtype) in ("integer", "boolean"):
        shown = None if value.value is None else str(value.value).lower()
        return Constant(shown, TEXT)
    return apply("cast", value, to=TEXT)


@operation(
    "split_part",
    f"{CUT} It returns null if there is no such part.",
    spoken="str.split",
    samples=({"separator": ",", "index": 0}, {"separator": "a", "index": -1}),
)
def _split_part(x: Expression, *, separator: str, index: int) -> Expression:
    check_text(separator, "str.split", "a separator", MOST_INSERTED)
    check_integer(index, -10_000, 10_000, "str.split", "an index")
    return make("split_part", (as_text(x, "str.split"),), TEXT, separator=separator, index=index)


@operation(
    "split",
    f"{CUT} Every text can be split at a public separator.",
    spoken="str.split",
    samples=({"separator": ","}, {"separator": "a"}),
)
def _split(x: Expression, *, separator: str) -> Expression:
    check_text(separator, "str.split", "a separator", MOST_INSERTED)
    return make("split", (as_text(x, "str.split"),), pl.List(TEXT), separator=separator)


@operation(
    "to_integer",
    "A text that is not an integer in the public base gives null.",
    spoken="str.to_integer",
    samples=({"base": 10}, {"base": 16}, {"base": 2}),
)
def _to_integer(x: Expression, *, base: int = 10) -> Expression:
    check_integer(base, 2, 36, "str.to_integer", "a base")
    return make("to_integer", (as_text(x, "str.to_integer"),), INT, base=base)


# ---------------------------------------------------------------------- fields of JSON texts

JsonPath = tuple[str | int, ...]
"""The names of fields and the places in lists, counted from 0, that lead to a value inside a JSON text."""

_JSON_STEP = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_]*)|\."([^"]*)"|\['([^']*)'\]|\[(\d{1,9})\]""")
_JSON_FIX = "Write names of fields and places in lists: `$.address.city`, `$.items[0]`."


def json_path(text: str, spoken: str) -> JsonPath:
    """Return the steps of a path such as `$.items[0].price`, or refuse one that may have several values."""
    found: list[str | int] = []
    place = 1
    while place < len(text):
        step = _JSON_STEP.match(text, place)
        if step is None:
            break
        name = next((part for part in step.groups()[:3] if part is not None), None)
        found.append(int(step[4]) if name is None else name)
        place = step.end()
    if not text.startswith("$") or place < len(text) or not found:
        raise bad(spoken, "needs a path to a single value", _JSON_FIX)
    return tuple(found)


@operation(
    "json_text",
    "A text that is not JSON, or that has nothing at the end of the public path, gives null. "
    f"It returns at most {MOST_TEXT:,} characters.",
    spoken="str.json_path_match",
    samples=({"path": ("a",)}, {"path": ("a", 0, "b c")}, {"path": (1,)}),
)
def _json_text(x: Expression, *, path: JsonPath) -> Expression:
    if not path or len(path) > 20:
        raise bad("str.json_path_match", "needs a path of 1 to 20 steps", _JSON_FIX)
    for step in path:
        if isinstance(step, int):
            check_integer(step, 0, 10**9, "str.json_path_match", "a place in a list")
        elif set(check_text(step, "str.json_path_match", "the name of a field", 200)) & set("'\"\\"):
            raise bad("str.json_path_match", "can't find names with quotes or backslashes", "Rename the field.")
    return make("json_text", (as_text(x, "str.json_path_match"),), TEXT, path=path)


# ---------------------------------------------------------------------- hashes


@operation("md5", "Every text has a hash of 32 hexadecimal digits, which depends on its bytes alone.", spoken="md5")
def _md5(x: Expression) -> Expression:
    text = make("cast", (x,), TEXT, to=TEXT) if kind_of(x.dtype) == "integer" else as_text(x, "md5")
    return make("md5", (text,), TEXT)


@operation(
    "md5_share",
    "Every text has a hash, and its remainder by a public number is a whole number below that number.",
    spoken="md5_number_lower",
    samples=({"parts": 2}, {"parts": 1000}),
)
def _md5_share(x: Expression, *, parts: int) -> Expression:
    check_integer(parts, 1, 1 << 31, "md5_number_lower", "a number of parts")
    text = make("cast", (x,), TEXT, to=TEXT) if kind_of(x.dtype) == "integer" else as_text(x, "md5_number_lower")
    return make("md5_share", (text,), INT, parts=parts)
