"""What people see: text for a terminal, HTML for a notebook, and charts.

Everything here shows public facts and released values, never rows.

- `text`: numbers, times and labels as text, with control characters escaped.
- `html`: the building blocks of notebook views.
- `fact_table`: the base class of objects that read as a table of facts, such as plans.
- `released_table`: released frames as tables, in a terminal, HTML and Markdown.
- `report`: `release.report()`, a release as a paragraph and a table for a memo.
- `session`: a session and its releases, as text, HTML and a chart of the budget.
- `completion`: the names that completion offers on a private frame.
- `charts`: `dp.plot` and the charts behind it.

`text`, `html`, `fact_table` and `completion` import nothing else of the library, so every layer may use them. The
others may import: sessions, plans, releases, `theory`, `errors`. Never: engines or private rows.
"""
