"""Forecasts: a predictor that is fed its own output, with a predictive distribution at every lead time.

- `rollout`: the function to call; it steps all particles of all trajectories in one compiled loop
- `particles`: how each kind of predictor steps its particles
- `forecast`: the result, a mixture at every lead

Imports data, nn, predictive, predictors and metrics.
"""
