"""Very many questions over a public domain for one charge: `online_queries` and `synthesize`.

- `domain`: the columns that questions are about, with their public values (`dp.bins`).
- `predicates`: conditions over a domain.
- `online_plan`, `synthesis_plan`: what will happen and what it costs. Never see data.
- `histogram`, `online_release`, `synthesis_release`: the only modules here that see exact numbers.
- `online_queries`, `synthesis`: what users hold afterwards.
- `methods`: the methods of a private frame.

May import: `_plan`, `_release`, `_engines`, `_expressions`, `_aggregates`, `_frame.options`, `_frame.question` and
`_frame.aggregate_question`. Never: `_frame.private_frame`, `_sql`, `_display.charts`.
"""
