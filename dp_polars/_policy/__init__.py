"""Policies: what the owner of data says once, so that questions need no options but their spend.

- `lines`: finds the line of a key in a TOML text, because the parser of the standard library doesn't report it.
- `document`: reads the text of a policy into frozen values, and collects every mistake with its line.
- `sources`: which files a policy may name, and the check that no file belongs to two tables.
- `policy`: `dp.Policy`, which opens the tables and gives private frames and guarded connections.
- `analyst`: the connection of an analyst, which can ask but can't declare anything.
- `draft`: a first draft of a policy, from schemas alone.

May import: every package except `_cli` and `_audit`. Imported only by `_cli`, `dbt`, `ibis`,
`sqlalchemy` and `dp_polars` itself.
"""
