"""Texts from data, made harmless for a terminal."""

from __future__ import annotations

import re
from typing import Literal

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal may obey rather than show: control characters, ends of lines, directions of writing; and surrogates,
which it can't show at all."""


def escaped(text: str, *, keep: str = "", form: Literal["python", "json"] = "python") -> str:
    r"""Return a text in which nothing is a command for a terminal: such characters are written as escapes.

    >>> print(escaped("a\x1b[31m\nb"), escaped("a\nb\x9b", keep="\n", form="json"), sep=" | ")
    a\x1b[31m\nb | a
    b\u009b
    """

    def escape(found: re.Match[str]) -> str:
        sign = found[0]
        if sign in keep:
            return sign
        return f"\\u{ord(sign):04x}" if form == "json" else sign.encode("unicode_escape", "surrogatepass").decode()

    return _OBEYED.sub(escape, text)
