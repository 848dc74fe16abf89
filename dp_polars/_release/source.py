"""When two sources are the same, so that a release may be found again. Never computed from rows.

Equal content would tell that a person is absent. So a source is the same if its owner says so (`name` and
`data_version`); a plan over files, if the plan is the same and each file is the same object: path, device, inode, size
and times of change (that a file was touched counts as public); a frame in memory, if it is the same object in the
same process. An object that is changed in place stays the same: ask with `fresh=True`, or give the data a version.

A plan names a source only where all of it is understood. Python functions, plugins, patterns for several files, or a
kind of step that is not known here: then the frame is the same only as the same object.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import threading
import warnings
import weakref
from typing import Any

import polars as pl

_KNOWN: dict[int, tuple[weakref.ref[Any], bytes]] = {}
_LOCK = threading.Lock()


def source_identity(frame: pl.DataFrame | pl.LazyFrame, name: str | None, data_version: str | None) -> bytes:
    """Return bytes that are equal for the same source and, but for chance 2**-128, different for any other."""
    if name is not None and data_version is not None:
        return b"named:" + json.dumps([name, data_version]).encode()
    if isinstance(frame, pl.LazyFrame):
        files = _plan_over_files(frame)
        if files is not None:
            return b"files:" + files
    return b"object:" + object_token(frame)


def object_token(frame: object) -> bytes:
    """Return a random name for an object that lives as long as the object does."""
    number = id(frame)
    with _LOCK:
        known = _KNOWN.get(number)
        if known is not None and known[0]() is frame:
            return known[1]
        token = secrets.token_bytes(16)
        _KNOWN[number] = (weakref.ref(frame, lambda _, n=number: _KNOWN.pop(n, None)), token)  # type: ignore[misc]
        return token


def _plan_over_files(frame: pl.LazyFrame) -> bytes | None:
    """Return a plan whose only sources are local files, and which files these are now; None for any other plan."""
    try:
        # A plan over a frame in memory would be serialized with its rows: it is told by its description instead.
        if any(sign in frame.explain(optimized=False) for sign in ("DF [", "PYTHON SCAN")):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the JSON form is for reading by programs such as this one
            plan = _unwrapped(json.loads(frame.serialize(format="json")))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError):
        return None
    paths: list[str] = []
    if not _is_plan(plan, paths) or not paths:
        return None
    states = [file_state(path) for path in paths]
    return None if None in states else json.dumps([plan, states], sort_keys=True).encode()


def file_state(path: str) -> list[str | int] | None:
    """Return which object a path leads to now and when it was changed; None if it leads to no file.

    Device and inode are the object, whichever links lead to it (the real path would say less, and takes longer); the
    time of change tells a new file that got the number of a deleted one. If the path itself is a link it counts too:
    who swaps it twice leaves a trace there alone.
    """
    try:
        link, file = os.lstat(path), os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(file.st_mode):
        return None
    times = [one for state in (file, link) for one in (state.st_mtime_ns, state.st_ctime_ns)]
    return [os.path.abspath(path), file.st_dev, file.st_ino, link.st_ino, file.st_size, *times]


def _unwrapped(node: Any) -> Any:
    """Return a plan without the marks that Polars leaves when it has looked at the plan's schema."""
    if isinstance(node, list):
        return [_unwrapped(child) for child in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {"IR"} and isinstance(node["IR"], dict) and "dsl" in node["IR"]:
        return _unwrapped(node["IR"]["dsl"])
    return {kind: _unwrapped(child) for kind, child in node.items()}


# Steps of a plan that read nothing but their inputs, and what they do, in the words of Polars 1.44 and 2.x.
_STEPS = frozenset({"Filter", "Select", "HStack", "Slice", "Sort", "Distinct", "GroupBy", "Join", "Union", "HConcat"})
_FUNCTIONS = frozenset({"Rename", "RowIndex", "Unnest", "Explode"})
_INPUTS = ("input", "inputs", "input_left", "input_right")
_FORMATS = frozenset({"Parquet", "Csv", "Ipc", "NDJson"})
_OTHER_SOURCES = ("credential_provider", "deletion_files", "default_values", "table_statistics", "column_mapping",
                  "resolve_heavy_sources")  # fmt: skip
_FOREIGN = ("python", "opaque", "anonymous", "plugin")
_TIMES = frozenset({"Date", "Datetime", "Duration", "Time"})


def _is_plan(node: Any, paths: list[str]) -> bool:
    """Collect the paths of a plan's scans; False if a step is not known, or may read anything else."""
    if isinstance(node, list):
        return all(_is_plan(child, paths) for child in node)
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
    words = {name: word for name, word in step.items() if name not in _INPUTS}
    return bool(inputs) and all(_is_plan(one, paths) for one in inputs) and _is_said(words)


def _is_said(node: Any) -> bool:
    """Whether expressions and options say all there is to them: nothing from Python, no rows, no number left out."""
    if isinstance(node, list):
        return all(map(_is_said, node))
    if not isinstance(node, dict):
        return True
    return all(
        not any(sign in kind.lower() for sign in _FOREIGN)
        and (kind != "Literal" or _is_scalar(child))
        and _is_said(child)
        for kind, child in node.items()
    )


def _is_scalar(literal: Any) -> bool:
    """Whether a literal is one value that JSON has; rows never name a source, and inf and NaN are written as null."""
    if isinstance(literal, str):  # the name of a type
        return True
    if not isinstance(literal, dict) or len(literal) != 1 or set(literal) - {"Dyn", "Scalar"}:
        return False
    (scalar,) = literal.values()
    if not isinstance(scalar, dict) or len(scalar) != 1:
        return False
    ((kind, value),) = scalar.items()
    if kind in _TIMES and isinstance(value, list):  # the number, its unit and its zone
        value = value[0]
    return isinstance(value, str | int | float)


def _scan_paths(scan: Any, paths: list[str]) -> bool:
    """Collect the paths of a scan; False if it may read other files, or files that come and go by a pattern."""
    sources = scan.get("sources") if isinstance(scan, dict) else None
    listed = sources.get("Paths") if isinstance(sources, dict) else None
    if not listed or not isinstance(scan.get("scan_type"), dict) or not set(scan["scan_type"]) <= _FORMATS:
        return False
    if any(value is not None for name in _OTHER_SOURCES for value in _values(scan, name)):
        return False
    for entry in listed:
        path = entry.get("inner") if isinstance(entry, dict) else entry
        if not isinstance(path, str) or set(path) & set("*?[]{}") or not os.path.isfile(path):
            return False  # a folder, a pattern or an address: its files may change without a trace
        paths.append(path)
    return True


def _values(node: Any, name: str) -> list[Any]:
    """Return what stands anywhere under a name."""
    if isinstance(node, list):
        return [value for child in node for value in _values(child, name)]
    if not isinstance(node, dict):
        return []
    return [value for key, child in node.items() for value in ([child] if key == name else _values(child, name))]
