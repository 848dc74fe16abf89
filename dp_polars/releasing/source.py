"""When two sources are the same, so that a release may be found again. Never computed from rows.

Equal content would tell that a person is absent. So a source is the same if its owner says so (`name` and
`data_version`); a plan over files, if the plan and each file's path, size and time of change are the same (that a file
was touched counts as public); a frame in memory, if it is the same object in the same process. An object that is
changed in place stays the same: ask with `fresh=True`, or give the data a version.
"""

from __future__ import annotations

import json
import os
import secrets
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
    """Return a plan whose only sources are local files, with their sizes and times; None for any other plan."""
    try:
        # A plan over a frame in memory would be serialized with its rows: it is told by its description instead.
        if any(sign in frame.explain(optimized=False) for sign in ("DF [", "PYTHON SCAN")):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the JSON form is for reading by programs such as this one
            plan = _unwrapped(json.loads(frame.serialize(format="json")))
    except (pl.exceptions.PolarsError, OSError, ValueError):
        return None
    paths: list[str] = []
    if not _scans_only_files(plan, paths) or not paths:
        return None
    try:
        states = [(path, (state := os.stat(path)).st_size, state.st_mtime_ns) for path in paths]
    except OSError:
        return None
    return json.dumps([plan, states], sort_keys=True).encode()


def _unwrapped(node: Any) -> Any:
    """Return a plan without the marks that Polars leaves when it has looked at the plan's schema."""
    if isinstance(node, list):
        return [_unwrapped(child) for child in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {"IR"} and isinstance(node["IR"], dict) and "dsl" in node["IR"]:
        return _unwrapped(node["IR"]["dsl"])
    return {kind: _unwrapped(child) for kind, child in node.items()}


def _scans_only_files(node: Any, paths: list[str]) -> bool:
    """Collect the paths of a plan's scans; False if it reads anything else."""
    if isinstance(node, list):
        return all(_scans_only_files(child, paths) for child in node)
    if not isinstance(node, dict):
        return True
    for kind, child in node.items():
        if kind in {"DataFrameScan", "PythonScan", "Df", "df"} or (kind == "Literal" and not _is_scalar(child)):
            return False
        if kind == "Scan":
            if not _scan_paths(child, paths):
                return False
        elif not _scans_only_files(child, paths):
            return False
    return True


def _is_scalar(literal: Any) -> bool:
    """Whether a literal is one value; a Series or a list might hold rows, and rows never name a source."""
    if not isinstance(literal, dict) or set(literal) - {"Dyn", "Scalar"}:
        return False
    scalar = literal.get("Scalar", {})
    return not (isinstance(scalar, dict) and set(scalar) & {"List", "Array", "Struct", "Object"})


def _scan_paths(scan: Any, paths: list[str]) -> bool:
    sources = scan.get("sources") if isinstance(scan, dict) else None
    listed = sources.get("Paths") if isinstance(sources, dict) else None
    if not listed:
        return False
    for entry in listed:
        path = entry.get("inner") if isinstance(entry, dict) else entry
        if not isinstance(path, str) or not os.path.isfile(path):
            return False  # a folder, a pattern or an address: its files may change without a trace
        paths.append(path)
    return True
