"""Predictive distributions, whatever they were computed by.

- `mixture.py`: `Mixture`, a Gaussian mixture at every point: variance in two parts, quantiles, density, and CRPS.
- `recalibrated.py`: `Recalibrated`, a mixture with new levels.
- `in_units.py`: `InUnits`, either of them in the units of a user's fields: where units are undone.

May import `errors` alone.
"""
