"""A plugin for dbt-duckdb, so that models read private answers as sources.

`module: dp_polars.dbt` in the profile opens a policy, and each source with `plugin: dp` and a `query` is one statement
over the policy's tables. Its answer is stored in the policy's ledger, so a rerun on unchanged sources is free. dbt
loads this module by its name; `import dp_polars` does not.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from dp_polars._policy.policy import Policy
from dp_polars.errors import InvalidParameterError

__all__ = ["Plugin"]

_SPENDS = ("share", "epsilon", "rho")
_CAPS = ("max_groups", "max_rows_per_group", "max_rows", "confidence")
_OWN = ("policy", "analyst", *_SPENDS)
_OF_SOURCE = ("query", *_SPENDS, *_CAPS)
_OF_DBT = ("plugin", "materialization", "save_mode", "external_location", "formatter", "enabled")


class Plugin:
    """What dbt-duckdb asks of a plugin: the rows of each source. A policy is loaded once, at the first source.

    Parameters
    ----------
    name
        The plugin's alias in the profile.
    plugin_config
        `policy` (the path of a policy with a ledger), `analyst` (who asks), and `share`, `epsilon` or `rho` (the spend
        of sources that name none).
    credentials
        The profile's target. Its settings may stand among the plugin's options, because dbt-duckdb adds them.

    Examples
    --------
    >>> from dp_polars.dbt import Plugin
    >>> Plugin("dp", {"policy": "policy.toml", "analyst": "team-a", "share": 0.05}).default_materialization()
    'table'
    """

    def __init__(self, name: str, plugin_config: Mapping[str, Any], credentials: Any = None) -> None:
        self.name, self.creds = name, credentials
        settings = getattr(credentials, "settings", None) or {}
        _check_names(plugin_config, (*_OWN, *settings), f"The plugin {name}")
        path, analyst = plugin_config.get("policy"), plugin_config.get("analyst")
        if not isinstance(path, str):
            raise InvalidParameterError(
                f"The plugin {name} needs a policy. Write config: {{policy: policy.toml, analyst: team-a}}."
            )
        self._path, self._analyst = path, analyst
        self._spend = {word: plugin_config[word] for word in _SPENDS if plugin_config.get(word) is not None}
        self._policy: Policy | None = None
        self._loading = threading.Lock()

    def load(self, source_config: Any) -> Any:
        """Return the answer of a source's `query` as an Arrow table. Its meta may also name a spend and caps."""
        meta = source_config.meta
        where = f"The source {source_config.table_name()}"
        _check_names(meta, (*_OF_SOURCE, *_OF_DBT), where)
        if not isinstance(meta.get("query"), str):
            raise InvalidParameterError(
                f"{where} needs a query, one SELECT over the policy's tables. Write meta: {{plugin: {self.name}, "
                "query: ...}."
            )
        options = {word: meta[word] for word in (*_SPENDS, *_CAPS) if meta.get(word) is not None}
        with self._opened().connect(analyst=self._analyst, **self._spend) as connection:
            return connection.execute(meta["query"], **options).arrow()

    def _opened(self) -> Policy:
        with self._loading:
            if self._policy is None:
                policy = Policy.load(self._path)
                if not policy.has_ledger:
                    raise InvalidParameterError(
                        "This policy has no ledger, so every run of dbt would start with a new budget and pay again. "
                        'Add ledger = "budget.db" to its [budget].'
                    )
                self._policy = policy
            return self._policy

    def store(self, target_config: Any) -> None:
        """Refuse to write, because a policy's tables are only read."""
        raise InvalidParameterError("dp_polars has sources only: nothing can be written through a policy.")

    def update_connection_config(self, creds: Any, config: dict[str, Any]) -> None:
        """Change nothing about dbt's own database, which never has private rows."""

    def configure_connection(self, conn: Any) -> None:
        """Change nothing about dbt's own connection."""

    def configure_cursor(self, cursor: Any) -> None:
        """Change nothing about dbt's own cursors."""

    def default_materialization(self) -> str:
        """Return how answers are stored: as tables."""
        return "table"


def _check_names(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Refuse options that mean nothing, because a misspelt `analyst` would ask as the owner does."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidParameterError(
            f"{where} has the option {unknown[0]}, which means nothing here. It may have {', '.join(known)}."
        )
