"""Predictive distributions, whatever they were computed by.

- `mixture.py`: `Mixture`, a Gaussian mixture at every point, and `Recalibrated`, a mixture with new levels.
- `in_units.py`: `InUnits`, either of them in the units of a user's fields.

May import from `errors` alone.
"""
