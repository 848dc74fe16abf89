"""The local model: `randomized_response`, one random category for each unit.

- `plan`: what randomized response does and costs (`ResponsePlan`). Never sees data.
- `release`: from private values to responses. The only module here that sees exact values.
- `methods`: the method of a private frame, and how its arguments become a planned question.

May import: `_plan`, `_release`, `_engines`, `_expressions`, `_frame.options`, `_frame.question` and
`_frame.aggregate_question`. Never: `_frame.private_frame`, `_sql`, `_display.charts`.
"""
