"""Forecasts: a predictor is fed its own output, and gives a predictive distribution at every lead.

- `rollout.py`: the function to start from, `xr.rollout`, and the checks of what it is given
- `loop.py`: all particles from lead to lead, particles and trajectories in one compiled loop
- `particles.py`: how each kind of predictor takes one step of all its particles
- `forecast.py`: the result, a mixture at every lead
- `windows.py`: forecasts of stretches of held-out trajectories, with the truth at their leads
- `growth.py`: how much wider a predictor's forecasts have to be at each lead, fitted to such windows
- `scores.py`: scores by lead

May import the packages before it (`crossreg/__init__.py` has the order).
"""

from typing import TYPE_CHECKING

from crossreg.lazy import public_names

if TYPE_CHECKING:
    from crossreg.forecasts.forecast import Forecast as Forecast
    from crossreg.forecasts.forecast import Limits as Limits
    from crossreg.forecasts.growth import fit_growth as fit_growth
    from crossreg.forecasts.scores import climatology_of as climatology_of
    from crossreg.forecasts.scores import score_by_lead as score_by_lead

__getattr__, __dir__, __all__ = public_names(
    __name__,
    {
        "forecast": ["Forecast", "Limits"],
        "growth": ["fit_growth"],
        "scores": ["climatology_of", "score_by_lead"],
    },
)
