"""Forecasts: a predictor that is fed its own output, with a predictive distribution at every lead time.

- `rollout`: the command to start from; particles and trajectories in one compiled loop
- `particles`: how one step of all particles is taken, for each kind of predictor
- `forecast`: the result, a mixture at every lead

Imports data, nn, predictive, predictors and metrics.
"""
