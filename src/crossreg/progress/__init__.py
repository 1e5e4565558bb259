"""Displays of trainings in progress, and the histories that trainings write.

- `display`: tables and counts in a terminal; `sweep_display` and `jobs_display` for sweeps.
- `progress_file`: `progress.json`, for `crossreg watch`.
- `history`: reads the JSON lines of losses, scores and σ over the steps.

May import what comes before it: errors, files, machine, config, data, nn, predictive, objectives, routing, predictors,
metrics, methods, training and designs.
"""
