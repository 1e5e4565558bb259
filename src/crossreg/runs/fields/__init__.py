"""Predictions of some test trajectories at every point, and where a run is wrong.

- `stored_fields`: the format of `test_fields.npz` and `rollout_fields.npz`, read and written.
- `test_fields`: computes and loads what a run keeps of single steps.
- `forecast_fields`: the same of forecasts, by lead.
- `regions`: finds the blocks of space and time where the error is largest.

May import what `runs` may, and of `runs` what `pyproject.toml` puts before it.
"""
