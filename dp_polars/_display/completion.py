"""The names that completion offers on a private frame."""

from __future__ import annotations

import difflib
from typing import NoReturn

_OTHER_NAMES = {"avg": "mean", "average": "mean", "stddev": "std", "variance": "var", "nunique": "n_unique"}


class PublicNames:
    """An object whose `dir` lists public names only, and whose missing names come with a suggestion."""

    def __dir__(self) -> list[str]:
        return sorted(name for name in object.__dir__(self) if not name.startswith("_"))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        near = _OTHER_NAMES.get(name) or next(iter(difflib.get_close_matches(name, dir(self), 1)), None)
        hint = f"Did you mean {near}?" if near else f"There are {', '.join(dir(self))}."
        raise AttributeError(
            f"A private frame answers queries and never shows rows, so it has no {name}. {hint}", name=name, obj=self
        )
