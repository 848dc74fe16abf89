"""Read the tree that Polars serializes, node by node; what is not understood in full is refused.

This pass knows names and shapes only. Types, and the forms that give null instead of failing, come in `settling`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dp_polars.asking.allowed import EVERY, FUNCTIONS, LITERALS, OPERATORS, kind_of
from dp_polars.asking.refusals import SERIES, UNKNOWN, Reason, reason_for, refusal, spoken
from dp_polars.errors import ExpressionNotAllowed, InvalidParameterError

Tree = dict[str, Any] | str
"""One node as Polars writes it to JSON."""

_NAMESPACES = frozenset(path.partition(".")[0] for path in FUNCTIONS if "." in path) | {
    "Agg",
    "Business",
    "Extension",
    "Random",
    "Range",
    "RollingExpr",
    "RollingExprBy",
}
_RENAMES = frozenset({"Prefix", "Suffix", "ToLowercase", "ToUppercase", "Replace", "StripPrefix", "StripSuffix"})

_NOT_FINITE = Reason(
    "is NaN or infinite",
    "Polars cannot write such a constant down, so two different queries would look the same.",
    "Use `None` for a missing value, leave out the bound, or ask with `is_nan()`, `is_infinite()` or `is_finite()`.",
)


@dataclass(frozen=True)
class Question:
    """What is being checked: the word for it in messages, and the columns it may read."""

    what: str
    schema: pl.Schema

    def refuse(self, name: str, reason: Reason) -> ExpressionNotAllowed:
        """Return the error that refuses the function or value called `name`."""
        return refusal(self.what, name, reason)


@dataclass(eq=False)
class Node:
    """One understood node.

    Attributes
    ----------
    form
        `Column`, `Literal`, `Name` (alias and the like), `Cast`, `Ternary`, `Operator` or `Function`.
    path
        The column, the kind of the literal, the operator or the path of the function.
    parts
        The nodes it is computed from.
    options
        What is written beside the parts: a function's parameters, a literal's value, a cast's type, a new name.
    tree
        The node as Polars wrote it.
    """

    form: str
    path: str
    parts: tuple[Node, ...]
    options: Any
    tree: Tree
    dtype: pl.DataType | None = None
    columns: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        own = {self.path} if self.form == "Column" else set()
        self.columns = frozenset(own.union(*(part.columns for part in self.parts)))

    @property
    def constant(self) -> bool:
        """Whether the node reads no column, so that its value is public."""
        return not self.columns

    @property
    def kind(self) -> str:
        """The kind of the node's type."""
        if self.form == "Literal":
            return self.path
        return "other" if self.dtype is None else kind_of(self.dtype)

    def rebuilt(self, parts: list[Tree], options: Any) -> Tree:
        """Return the node as Polars writes it, with these parts and options; casts give null where they fail."""
        match self.form:
            case "Name" if self.path == "Alias":
                return {"Alias": [parts[0], options]}
            case "Name":
                return (
                    {"KeepName": parts[0]} if options is None else {self.path: {"function": options, "expr": parts[0]}}
                )
            case "Cast":
                return {"Cast": {"expr": parts[0], "dtype": options, "options": "NonStrict"}}
            case "Ternary":
                return {"Ternary": {"predicate": parts[0], "truthy": parts[1], "falsy": parts[2]}}
            case "Operator":
                return {"BinaryExpr": {"left": parts[0], "op": self.path, "right": parts[1]}}
            case "Function":
                space, _, name = self.path.rpartition(".")
                function: Any = name if options is None else {name: options}
                return {"Function": {"input": parts, "function": {space: function} if space else function}}
        return self.tree

    def walk(self) -> Iterator[Node]:
        """Yield the nodes below and this one, parts first."""
        for part in self.parts:
            yield from part.walk()
        yield self


def outline(tree: Any, question: Question) -> Node:
    """Return the understood tree, or refuse the first node that is not."""
    name, body = _named(tree)
    match name, body:
        case "Column", str():
            return _column(body, tree, question)
        case "Literal", dict():
            return _literal(body, tree, question)
        case "Alias", [inner, str(alias)]:
            return Node("Name", name, (outline(inner, question),), alias, tree)
        case "KeepName", dict():
            return Node("Name", name, (outline(body, question),), None, tree)
        case "RenameAlias", {"function": function, "expr": inner} if len(body) == 2 and _named(function)[0] in _RENAMES:
            return Node("Name", name, (outline(inner, question),), function, tree)
        case "Cast", {"expr": inner, "dtype": {"Literal": _} as dtype, "options": "Strict" | "NonStrict"} if (
            len(body) == 3
        ):
            return Node("Cast", name, (outline(inner, question),), dtype, tree)
        case "Ternary", {"predicate": when, "truthy": then, "falsy": otherwise} if len(body) == 3:
            parts = tuple(outline(part, question) for part in (when, then, otherwise))
            return Node("Ternary", name, parts, None, tree)
        case "BinaryExpr", {"left": left, "op": str(operator), "right": right} if (
            len(body) == 3 and operator in OPERATORS
        ):
            return Node("Operator", operator, (outline(left, question), outline(right, question)), None, tree)
        case "Function", {"input": list(inputs), "function": function} if len(body) == 2:
            return _function(function, inputs, tree, question)
        case "Cast", {"options": "Overflowing"}:
            raise question.refuse("cast(wrap_numerical=True)", UNKNOWN)
        case "Agg", _:
            name = f"Agg.{_named(body)[0]}"
    raise question.refuse(spoken(name), reason_for(name))


def _named(tree: Any) -> tuple[str, Any]:
    """Return the name and the body of a node that Polars writes as `"Name"` or `{"Name": body}`."""
    if isinstance(tree, str):
        return tree, None
    if isinstance(tree, dict) and len(tree) == 1:
        return next(iter(tree.items()))
    return "a part that Polars writes in an unknown way", None


def _column(name: str, tree: Tree, question: Question) -> Node:
    dtype = question.schema.get(name)
    if dtype is None:
        raise unknown_column(name, question)
    if kind_of(dtype) == "other":
        raise question.refuse(
            name,
            Reason(f"has the type {dtype}", "Its values cannot be checked.", "Convert the column before `.dp`."),
        )
    return Node("Column", name, (), None, tree, dtype)


def unknown_column(name: str, question: Question) -> InvalidParameterError:
    """Return the error for a column that the frame does not have, with the names that look like it."""
    names = question.schema.names()
    close = difflib.get_close_matches(name, names, n=3)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"It has {', '.join(names[:10]) or 'no columns'}."
    return InvalidParameterError(
        f"The {question.what} expression reads {name}, but the frame has no column {name}. {hint}"
    )


def _literal(body: dict[str, Any], tree: Tree, question: Question) -> Node:
    holder, value = _named(body)
    name, content = _named(value)
    if holder not in ("Dyn", "Scalar"):
        raise question.refuse("a literal", SERIES)
    if name not in LITERALS:
        raise question.refuse(f"a literal of type {name}", UNKNOWN)
    if LITERALS[name] == "float" and content is None:
        raise question.refuse("a literal", _NOT_FINITE)
    return Node("Literal", LITERALS[name], (), content, tree)


def _function(function: Any, inputs: list[Any], tree: Tree, question: Question) -> Node:
    path, options = _named(function)
    if path in _NAMESPACES and path not in FUNCTIONS:
        name, options = _named(_method(options))
        path = f"{path}.{name}"
    rule = FUNCTIONS.get(path)
    if rule is None or not _understood(options, rule.options):
        raise question.refuse(rule.name if rule else spoken(path), UNKNOWN if rule else reason_for(path))
    if path == "Replace":
        inputs = [*inputs[:1], *map(_listed, inputs[1:])]
    parts = tuple(outline(part, question) for part in inputs)
    if rule.operands != EVERY and not all(part.constant for part in parts[rule.operands :]):
        raise question.refuse(
            rule.name,
            Reason(
                "takes a column where it needs a constant",
                "A pattern, length or list that comes from a row can make the query fail on that row, or mix rows.",
                "Pass a Python value" + (" (a list)." if path == "Boolean.IsIn" else "."),
            ),
        )
    return Node("Function", path, parts, options, tree)


def _method(options: Any) -> Any:
    """Return the function inside a family that Polars writes as `{"function": "Mean", "options": ...}`."""
    for key in ("function", "function_by", "method"):
        if isinstance(options, dict) and key in options:
            return options[key]
    return options


def _listed(tree: Any) -> Any:
    """Return the Series that `replace` makes of a Python list as the list it was; both hold the same bytes."""
    match tree:
        case {"Literal": {"Series": content}}:
            return {"Literal": {"Scalar": {"List": content}}}
    return tree


def _understood(options: Any, known: frozenset[str]) -> bool:
    """Return whether every parameter beside a function has a name that its rule knows."""
    if options is None:
        return not known or known == {"inner"}
    if "value" in known:
        return True
    return isinstance(options, dict) and options.keys() <= known
