"""Predictions of some test trajectories at every point, and where a run is wrong.

- `regions`: finds the blocks of space and time where the error is largest.
- `test_fields`: computes and loads what a run keeps.
- `stored_fields`: the format of `test_fields.npz`.
"""
