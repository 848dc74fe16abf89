"""The steps of a frame as the audit log shows them: what was asked, in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_EXPRESSION = ('{"apply":', '{"column":', '{"constant":')


def asked_steps(steps: Sequence[str]) -> str:
    r"""Return the steps before a question as text.

    >>> asked_steps(['["filter", ["{\\"apply\\":\\"gt\\",\\"to\\":[{\\"column\\":\\"x\\"},{\\"constant\\":3}]}"]]'])
    'filter(gt(x, 3))'
    """
    return ".".join(_step(*json.loads(step)) for step in steps).replace("\0", "")


def _step(kind: str, detail: Any = None) -> str:
    inner = detail if isinstance(detail, list | dict) else [detail]
    text = _written(inner)
    return f"{kind}({text[1:-1]})"


def _written(part: Any) -> str:
    if isinstance(part, str):
        return _expression(json.loads(part)) if part.startswith(_EXPRESSION) else part
    if isinstance(part, list):
        return f"[{', '.join(map(_written, part))}]"
    if isinstance(part, dict):
        return f"{{{', '.join(f'{name}={_written(value)}' for name, value in part.items())}}}"
    return json.dumps(part)


def _expression(node: Any) -> str:
    if "column" in node:
        return str(node["column"])
    if "constant" in node:
        return _constant(node["constant"])
    options = [f"{name}={_option(value)}" for name, value in node.get("with", [])]
    return f"{node['apply']}({', '.join([*map(_expression, node['to']), *options])})"


def _option(value: Any) -> str:
    return (
        _expression(value) if isinstance(value, dict) and {"column", "constant", "apply"} & set(value) else str(value)
    )


def _constant(value: Any) -> str:
    match value:
        case ["float", str(text)]:
            return repr(float.fromhex(text))
        case ["list", list(values)]:
            return f"[{', '.join(map(_constant, values))}]"
    return json.dumps(value, ensure_ascii=False)
