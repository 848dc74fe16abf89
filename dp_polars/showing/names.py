"""Which names completion offers."""

from __future__ import annotations


class PublicNames:
    """An object whose `dir` lists what people may call, and nothing of how it works inside."""

    def __dir__(self) -> list[str]:
        return sorted(name for name in object.__dir__(self) if not name.startswith("_"))
