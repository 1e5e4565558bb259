"""Scores of predictive distributions, and their means and intervals.

evaluation.py     all scores of a predictor on a split (NLL and CRPS at a point: `predictive/mixture.py`)
calibration.py    coverage of central intervals and ECE_mix, from PIT values
localization.py   whether uncertainty is large where the error is: Spearman's correlation and AUSE
intervals.py      means over seeds with 95% intervals
test_times.py     scores on test times within and beyond those of train

May import the packages before it (`crossreg/__init__.py` has the order).
"""

from typing import TYPE_CHECKING

from crossreg.lazy import public_names

if TYPE_CHECKING:
    from crossreg.metrics.calibration import coverage as coverage
    from crossreg.metrics.calibration import ece_from_coverage as ece_from_coverage
    from crossreg.metrics.evaluation import evaluate as evaluate
    from crossreg.metrics.evaluation import evaluate_all as evaluate_all
    from crossreg.metrics.evaluation import sigma_per_site as sigma_per_site
    from crossreg.metrics.intervals import Interval as Interval
    from crossreg.metrics.intervals import interval as interval

__getattr__, __dir__, __all__ = public_names(
    __name__,
    {
        "evaluation": ["evaluate", "evaluate_all", "sigma_per_site"],
        "calibration": ["coverage", "ece_from_coverage"],
        "intervals": ["Interval", "interval"],
    },
)
