"""What a person sees while something trains, and the histories that trainings write.

- `display`: tables and counts in a terminal; `sweep_display` and `jobs_display` for sweeps.
- `progress_file`: `progress.json`, for `crossreg watch`.
- `history`: reads the JSON lines of losses, scores and σ over the steps.

May import errors, files, machine, config, and whatever comes before training, and training itself.
"""
