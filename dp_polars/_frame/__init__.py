"""`df.dp` and `lf.dp`: private frames, their checked transformations and their questions.

- `private_frame`: `PrivateFrame` with its transformations, `dp.private`, and the registration of `df.dp`.
- `preview`: `Preview`, with the same methods, which return plans.
- `dashboard`: `dp.Dashboard`, questions that are planned as a whole.
- `methods`: the aggregates as methods. The other methods come from `_choices`, `_streams`, `_many`, `_local` and
  `_profile`.
- `behaviour`: sessions, funnels and retention, as steps within a unit.
- `misplaced`: what to write instead of an aggregate of Polars.
- `question`: what a question is: its view of a frame, its plan, its answer.
- `aggregate_question`: from the arguments of aggregates to a planned question.
- `adopted`: caps and bounds that a question leaves out and the session adopted from a profile.
- `derived_bounds`: bounds of a calculation, from the bounds that a policy gives its columns.
- `table_rules`: what a policy says about a table, and the check that a question follows it.
- `cut`: the counts that `cut=True` adds to a question.
- `asked`: the steps of a frame as the audit log shows them.
- `options`: the options of all methods, and how they become a spend, caps and public keys.

May import: everything but `_sql`, `_cli`, `_audit` and `_display.charts`. Only `private_frame`, `preview` and
`dashboard` import the feature folders; these import `options`, `question`, `adopted` and `aggregate_question` in turn.
"""
