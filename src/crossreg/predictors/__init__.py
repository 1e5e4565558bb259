"""Predictors: anything that turns a batch into a predictive distribution, and wrappers that recalibrate one.

- `predictor`: the type, and a surrogate as one
- `ensemble`: several models pooled; `persistence`: the input again
- `temperature`, `conformal`, `correlation`: fitted to held-out pairs after training
- `grown`: error bars that grow by lead, fitted to held-out trajectories by `forecasts/growth.py`
- `batches`: all pairs of a split in batches of one shape

May import the packages before it (`crossreg/__init__.py` has the order).
"""
