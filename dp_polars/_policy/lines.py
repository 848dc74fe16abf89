"""Find the line of each key in a TOML text.

`tomllib` returns values without their places. This scanner reads a text that `tomllib` has accepted, and only follows
keys, headers, strings, arrays and inline tables as far as it needs to tell where a key begins.
"""

from __future__ import annotations

import re
import tomllib

Path = tuple[str, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def key_lines(text: str) -> dict[Path, int]:
    r"""Return the line of each key and each table by its path, counted from 1. The first place of a path counts.

    >>> key_lines('unit = "id"\n[tables.orders]\ncolumns."net total".bounds = [\n 0,\n 5]\nsource = "a"')
    ... # doctest: +NORMALIZE_WHITESPACE
    {('unit',): 1, ('tables',): 2, ('tables', 'orders'): 2, ('tables', 'orders', 'columns'): 3,
     ('tables', 'orders', 'columns', 'net total'): 3, ('tables', 'orders', 'columns', 'net total', 'bounds'): 3,
     ('tables', 'orders', 'source'): 6}
    """
    return _Scanner(text.replace("\r\n", "\n")).lines()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._found: dict[Path, int] = {}

    def lines(self) -> dict[Path, int]:
        header: Path = ()
        while self._skip(newlines=True):
            if self._next() == "[":
                self._at += 2 if self._text.startswith("[[", self._at) else 1
                header = self._key()
                self._note((), header, self._line())
                if self._next() != "]":
                    raise ValueError("this is not a TOML text that tomllib accepts")
                self._at += 2 if self._text.startswith("]]", self._at) else 1
            else:
                self._pair(header)
        return self._found

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, *, newlines: bool) -> bool:
        """Skip blanks and comments; return whether anything is left."""
        blanks = " \t\n" if newlines else " \t"
        while self._at < len(self._text):
            if self._next() == "#":
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            elif self._next() in blanks:
                self._at += 1
            else:
                return True
        return False

    def _note(self, before: Path, key: Path, line: int) -> None:
        for size in range(1, len(key) + 1):
            self._found.setdefault((*before, *key[:size]), line)

    def _pair(self, before: Path) -> None:
        line = self._line()
        key = self._key()
        self._note(before, key, line)
        self._at += 1  # the equals sign
        self._value((*before, *key))

    def _key(self) -> Path:
        """Read a key of one or several parts, up to what follows it."""
        parts: list[str] = []
        while True:
            self._skip(newlines=False)
            if self._next() in ("'", '"'):
                begin = self._at
                self._string()
                parts.append(tomllib.loads(f"key = {self._text[begin : self._at]}")["key"])
            else:
                bare = _BARE.match(self._text, self._at)
                if bare is None:
                    raise ValueError("this is not a TOML text that tomllib accepts")
                parts.append(bare[0])
                self._at = bare.end()
            self._skip(newlines=False)
            if self._next() != ".":
                return tuple(parts)
            self._at += 1

    def _string(self) -> None:
        """Skip a string in any of the four forms."""
        quote = self._next()
        whole = quote * 3 if self._text.startswith(quote * 3, self._at) else quote
        self._at += len(whole)
        while not self._text.startswith(whole, self._at):
            if self._at >= len(self._text):
                raise ValueError("this is not a TOML text that tomllib accepts")
            self._at += 2 if quote == '"' and self._next() == "\\" else 1
        self._at += len(whole)
        while len(whole) == 3 and self._next() == quote:  # up to two quotes may end the text itself
            self._at += 1

    def _value(self, path: Path) -> None:
        """Skip a value, and note the keys of inline tables in it."""
        self._skip(newlines=False)
        first = self._next()
        if first in ("'", '"') and first:
            self._string()
        elif first in ("[", "{") and first:
            end = "]" if first == "[" else "}"
            self._at += 1
            while self._skip(newlines=True) and self._next() != end:
                if self._next() == ",":
                    self._at += 1
                elif first == "[":
                    self._value(path)
                else:
                    self._pair(path)
            self._at += 1
        else:
            while self._next() not in ("", "\n", ",", "]", "}", "#"):
                self._at += 1
