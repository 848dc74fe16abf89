"""Profiles: what to know about a table before choosing caps and bounds (`df.dp.profile`, or `SUMMARIZE` in SQL).

- `ladders`: the public bins into which numbers of rows and groups, and values, are sorted.
- `plan`: what a profile measures, what one unit can change and what it costs (`ProfilePlan`). Never sees data.
- `release`: from exact counts to noisy ones. The only module here that sees exact numbers.
- `profile`: `TableProfile`, which reads quantiles and suggestions off the noisy counts.
- `chart`: the chart of a profile.
- `methods`: the method of a private frame, and the question behind it.

May import: `_plan`, `_release`, `_engines`, `_expressions`, `_aggregates`, `_frame.options`, `_frame.question`,
`_frame.adopted` and `_frame.aggregate_question`. Never: `_frame.private_frame`, `_sql`.
"""
