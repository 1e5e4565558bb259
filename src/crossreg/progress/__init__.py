"""Displays of trainings in progress, and the histories that trainings write.

- `display`: tables and counts in a terminal; `sweep_display` and `jobs_display` for sweeps.
- `progress_file`: `progress.json`, for `crossreg watch`.
- `history`: reads the JSON lines of losses, scores and σ over the steps.

May import the packages before it (`crossreg/__init__.py` has the order).
"""
