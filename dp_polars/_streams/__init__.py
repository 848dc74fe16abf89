"""Streams: many questions compared with one threshold, where only hits are paid for (the sparse vector technique).

- `plan`: what a stream does and costs (`StreamPlan`). Never sees data.
- `queries`: what a stream can be asked, and how far one unit moves an answer. Never sees data.
- `release`: an open stream. The only module here that sees exact numbers.
- `stream`: `dp.Stream`, which users hold, and the methods of a private frame that open it.

May import: `_plan`, `_release`, `_engines`, `_expressions`, `_aggregates`, `_frame.options`, `_frame.question` and
`_frame.aggregate_question`. Never: `_frame.private_frame`, `_sql`, `_display.charts`.
"""
