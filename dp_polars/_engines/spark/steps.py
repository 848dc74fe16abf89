"""The steps of a private frame as nested SELECTs: filters, new columns, and lookups of public rows.

What one unit can change: every SELECT computes a row from one row, drops it, or joins it with public rows. Steps that
combine the rows of a unit are in `unit_steps`. Columns have generated names in SQL (`s0`, `m1_0`, ...), so no name of a
user is ever part of a text.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from dp_polars._engines.rows import Filter, Lookup, PrivateRows, WithColumns
from dp_polars._engines.spark.lowering import Layers, NotInSpark
from dp_polars._engines.spark.texts import Named, RowsText, select
from dp_polars._engines.spark.types import stored_type
from dp_polars._engines.spark.unit_steps import after_step
from dp_polars._engines.unit_steps import UnitRows
from dp_polars._expressions.tree import Expression

_JOINS = {"inner": "INNER JOIN", "left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}


def rows_text(rows: PrivateRows) -> RowsText:
    """Return the SQL text of private rows whose sources are Spark frames, or refuse what Spark cannot compute."""
    return _text(rows, Named())


def _text(rows: PrivateRows, named: Named) -> RowsText:
    source = rows.source
    if isinstance(source, UnitRows):
        found = after_step(source, [_text(one, named) for one in source.inputs])
    else:
        reads: dict[str, str] = getattr(source, "reads", {})
        columns = {name: f"s{place}" for place, name in enumerate(reads)}
        listed = [f"{reads[name]} AS {own}" for name, own in columns.items()]
        here = f"{getattr(source, 'per_row', 'FALSE')} AS here"
        found = RowsText(select([*listed, here], f"{{{named.source(source)}}}"), columns, named)
        found.sizes = {own: len(reads[name]) for name, own in columns.items()}
    for place, step in enumerate(rows.steps):
        match step:
            case Filter():
                _filter(found, step.conditions)
            case WithColumns():
                _make(found, step, place)
            case Lookup():
                _look_up(found, step, place)
    return found


def _computed(found: RowsText, expressions: Sequence[Expression]) -> list[str]:
    """Put long parts of expressions into inner SELECTs, and return the texts of the expressions."""
    layers = Layers(found.columns, found.sizes)
    texts = [layers.text(one)[0] for one in expressions]
    for added in layers.inner:
        found.text = select(["*", *(f"{text} AS {name}" for name, text in added)], f"({found.text})")
    found.sizes = layers.sizes
    return texts


def _filter(found: RowsText, conditions: Sequence[Expression]) -> None:
    texts = _computed(found, conditions)
    kept = ["here", *found.columns.values()]
    found.text = select(list(dict.fromkeys(kept)), f"({found.text})", f" WHERE {' AND '.join(texts)}")


def _make(found: RowsText, step: WithColumns, place: int) -> None:
    texts = _computed(found, [one for _, one in step.columns])
    made = {name: f"m{place}_{number}" for number, (name, _) in enumerate(step.columns)}
    kept = {name: own for name, own in found.columns.items() if name not in made} if step.keep else {}
    listed = [f"{text} AS {own}" for text, own in zip(texts, made.values(), strict=True)]
    found.text = select([*dict.fromkeys(["here", *kept.values()]), *listed], f"({found.text})")
    written = {own: found.sizes.get(text, len(text)) for text, own in zip(texts, made.values(), strict=True)}
    found.sizes = {own: found.sizes.get(own, 0) for own in kept.values()} | written
    found.columns = {name: made.get(name, kept.get(name, "")) for name in [*kept, *made]}


def _look_up(found: RowsText, step: Lookup, place: int) -> None:
    name = f"public{len(found.named.public)}"
    theirs = {own: f"p{place}_{number}" for number, own in enumerate(step.public.columns)}
    used = [own for own in theirs if own in {on for _, on in step.on} | {own for own, _ in step.columns}]
    for own in used:
        if stored_type(step.public.schema[own]) is None:
            raise NotInSpark(own, f" for the type {step.public.schema[own]}")
    found.named.public[name] = pl.DataFrame([step.public[own].alias(theirs[own]) for own in used or list(theirs)[:1]])
    sign = "<=>" if step.nulls_equal else "="
    on = [f"l.{found.columns[mine]} {sign} r.{theirs[own]}" for mine, own in step.on]
    added = {new: theirs[own] for own, new in step.columns}
    listed = [f"l.{own}" for own in dict.fromkeys(["here", *found.columns.values()])]
    listed += [f"r.{own} AS {own}" for own in dict.fromkeys(added.values())]
    found.text = select(
        listed, f"({found.text}) l {_JOINS[step.how]} {{{name}}} r", f" ON {' AND '.join(on) or 'TRUE'}"
    )
    found.columns = {**found.columns, **added}
