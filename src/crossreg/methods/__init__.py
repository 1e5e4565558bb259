"""The methods that are compared.

A trained method is a change of a config: where noise acts, which split its size is learned on, and how many samples
training draws. All methods run through the same training loop and end in the same mixture.

`names.py` is the only registry: it turns a name such as `dropout-0.2+temperature` into a `Method`. `xreg.py`,
`unregularized.py`, `dropout.py` and `fixed_noise.py` hold the changes of the config, `early.py` the trained replica
with its early-stopped state, and `readout.py` turns trained replicas into a predictor.

May import errors, files, machine, config, data, nn, predictive, objectives, routing, predictors and metrics.
"""
