"""Polars plans over files: when two of them read the same files, and whether lines of a file decide types.

A plan identifies its source only if every part of it is understood here. A plan with Python functions, plugins,
patterns for several files or an unknown kind of step does not; such a frame is the same only as the same object.
"""

from __future__ import annotations

import json
import os
import warnings
from typing import Any

import polars as pl

from dp_polars._engines.base import file_state


def plan_over_files(frame: pl.LazyFrame) -> bytes | None:
    """Return a plan and the current state of its files if it reads local files only; None for any other plan."""
    plan = _plan_of(frame)
    if plan is None:
        return None
    paths: list[str] = []
    if not _is_known_plan(plan, paths) or not paths:
        return None
    states = [file_state(path) for path in paths]
    return None if None in states else json.dumps([plan, states], sort_keys=True).encode()


def infers_types(frame: pl.LazyFrame) -> bool:
    """Return whether a plan scans a text file whose lines decide, or may decide, the types of its columns.

    A plan with Python functions or frames in memory can't be read; then the lines may decide.
    """
    try:
        texts = any(sign in frame.explain(optimized=False) for sign in ("Csv SCAN", "NDJson SCAN"))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return False
    plan = _plan_of(frame) if texts else None
    return texts and (plan is None or _infers(plan))


def _infers(node: Any) -> bool:
    if isinstance(node, list):
        return any(map(_infers, node))
    if not isinstance(node, dict):
        return False
    kind = node.get("scan_type")
    if isinstance(kind, dict) and set(kind) & {"Csv", "NDJson"}:
        (scan,) = kind.values()
        options = scan.get("options", {}) if isinstance(scan, dict) else {}
        return options.get("schema") is None and options.get("infer_schema_length") != 0
    return any(map(_infers, node.values()))


def _plan_of(frame: pl.LazyFrame) -> Any:
    """Return the plan of a frame as JSON, or None if it can't be written down or holds rows."""
    try:
        # Serializing a plan over a frame in memory would serialize its rows, so its description is checked first.
        if any(sign in frame.explain(optimized=False) for sign in ("DF [", "PYTHON SCAN")):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Polars warns that the JSON form may change between versions
            return _unwrapped(json.loads(frame.serialize(format="json")))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError):
        return None


def _unwrapped(node: Any) -> Any:
    """Return a plan without the wrappers that Polars adds once it has resolved the plan's schema."""
    if isinstance(node, list):
        return [_unwrapped(child) for child in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {"IR"} and isinstance(node["IR"], dict) and "dsl" in node["IR"]:
        return _unwrapped(node["IR"]["dsl"])
    return {kind: _unwrapped(child) for kind, child in node.items()}


# Steps that read nothing but their inputs, by their names in Polars 1.44 and 2.x.
_STEPS = frozenset({"Filter", "Select", "HStack", "Slice", "Sort", "Distinct", "GroupBy", "Join", "Union", "HConcat"})
_FUNCTIONS = frozenset({"Rename", "RowIndex", "Unnest", "Explode"})
_INPUTS = ("input", "inputs", "input_left", "input_right")
_FORMATS = frozenset({"Parquet", "Csv", "Ipc", "NDJson"})
_OTHER_SOURCES = ("credential_provider", "deletion_files", "default_values", "table_statistics", "column_mapping",
                  "resolve_heavy_sources")  # fmt: skip
_FOREIGN = ("python", "opaque", "anonymous", "plugin")
_TIMES = frozenset({"Date", "Datetime", "Duration", "Time"})


def _is_known_plan(node: Any, paths: list[str]) -> bool:
    """Collect the paths that a plan scans. Return False if a step is unknown or may read anything else."""
    if isinstance(node, list):
        return all(_is_known_plan(child, paths) for child in node)
    if not isinstance(node, dict) or len(node) != 1:
        return False
    ((kind, step),) = node.items()
    if kind == "Scan":
        return _scan_paths(step, paths)
    if not isinstance(step, dict) or kind not in _STEPS | {"MapFunction"}:
        return False
    if kind == "MapFunction" and not (isinstance(step.get("function"), dict) and set(step["function"]) <= _FUNCTIONS):
        return False
    inputs = [step[name] for name in _INPUTS if name in step]
    settings = {name: setting for name, setting in step.items() if name not in _INPUTS}
    return bool(inputs) and all(_is_known_plan(one, paths) for one in inputs) and _is_written_out(settings)


def _is_written_out(node: Any) -> bool:
    """Return whether the text of expressions and options is complete: no Python, no rows, no omitted number."""
    if isinstance(node, list):
        return all(map(_is_written_out, node))
    if not isinstance(node, dict):
        return True
    return all(
        not any(sign in kind.lower() for sign in _FOREIGN)
        and (kind != "Literal" or _is_scalar(child))
        and _is_written_out(child)
        for kind, child in node.items()
    )


def _is_scalar(literal: Any) -> bool:
    """Return whether a literal is a single value that JSON can hold.

    Rows never identify a source, and JSON writes infinities and NaN as null.
    """
    if isinstance(literal, str):  # the name of a type
        return True
    if not isinstance(literal, dict) or len(literal) != 1 or set(literal) - {"Dyn", "Scalar"}:
        return False
    (scalar,) = literal.values()
    if not isinstance(scalar, dict) or len(scalar) != 1:
        return False
    ((kind, value),) = scalar.items()
    if kind in _TIMES and isinstance(value, list):  # the number, its unit and its time zone
        value = value[0]
    return isinstance(value, str | int | float)


def _scan_paths(scan: Any, paths: list[str]) -> bool:
    """Collect the paths of a scan. Return False if it may read other files, or files that match a pattern."""
    sources = scan.get("sources") if isinstance(scan, dict) else None
    listed = sources.get("Paths") if isinstance(sources, dict) else None
    if not listed or not isinstance(scan.get("scan_type"), dict) or not set(scan["scan_type"]) <= _FORMATS:
        return False
    if any(value is not None for name in _OTHER_SOURCES for value in _values(scan, name)):
        return False
    for entry in listed:
        path = entry.get("inner") if isinstance(entry, dict) else entry
        if not isinstance(path, str) or set(path) & set("*?[]{}") or not os.path.isfile(path):
            return False  # the files behind a folder, a pattern or a URL may change without a trace
        paths.append(path)
    return True


def _values(node: Any, name: str) -> list[Any]:
    """Return everything that is stored under a name, at any depth."""
    if isinstance(node, list):
        return [value for child in node for value in _values(child, name)]
    if not isinstance(node, dict):
        return []
    return [value for key, child in node.items() for value in ([child] if key == name else _values(child, name))]
