"""Choices among candidates: `noisy_max`, `noisy_min`, `top_k` and `select_best`.

- `plan`: what a choice costs and why it is private (`ChoicePlan`). Never sees data.
- `release`: from exact scores to chosen candidates. The only module here that sees exact numbers.
- `question`: from the arguments of a call to a planned question.
- `methods`: the methods of a private frame.

May import: `_plan`, `_release`, `_engines`, `_expressions`, `_aggregates`, `_frame.options`, `_frame.question` and
`_frame.aggregate_question`. Never: `_frame.private_frame`, `_sql`, `_display.charts`.
"""
