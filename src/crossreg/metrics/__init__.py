"""Scores of predictive distributions, and their means and intervals.

evaluation.py     all scores of a predictor on a split
calibration.py    coverage of central intervals and ECE_mix, from PIT values
localization.py   whether uncertainty is large where the error is: Spearman's correlation and AUSE
intervals.py      means over seeds with 95% intervals
test_times.py     scores on test times within and beyond those of train

Imports packages from `errors` to `predictors`.
"""
