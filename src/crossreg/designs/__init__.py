"""Designs of experiments: which settings and methods are trained. No JAX here.

`presets.py` has named settings and scenarios, `paper.py` the paper's settings and numbers, `grids.py` the named sweeps
and grids over settings, and `car_study.py` the settings of `crossreg car`.

May import the packages before it (`crossreg/__init__.py` has the order).
"""
