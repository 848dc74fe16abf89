"""Charts of releases and plans, drawn with Altair (the extra `plot`). They contain released values only.

- `plot`: `dp.plot`, the object that users call.
- `releases`: charts of what was released, with the interval of the privacy noise.
- `tradeoff`: the expected error against epsilon, before anything is spent.
- `privacy_loss`: the distribution of the privacy loss of a plan on its worst neighbours.
- `base`: what all charts share.

May import: plans and releases of every feature, `theory`, `_display`. Never: engines or private rows.
"""
