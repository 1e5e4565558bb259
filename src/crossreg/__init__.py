"""Calibrated uncertainty for neural PDE surrogates, learned during training.

The backbone θ and the predictive noise ψ learn on the train split; a few scales ρ of generalization noise learn only
from the gradients of a held-out regularization split (reg). You get one model instead of an ensemble.

    import crossreg as xr

    data = xr.load("diff_ks", train_size=50, observed_fraction=0.7)
    result = xr.fit(data, steps=5_000)
    prediction = result.predict(x)

Networks and noise are in `xr.nn`, baselines and calibration in `xr.methods`, scores in `xr.metrics`, forecasts of many
steps in `xr.forecasts`, files for other runtimes in `xr.export`.

The packages and modules, in their order. Each may import those before it and no others, which `make lint` checks:

    errors, lazy         errors in one line; public names that are imported on first use
    files                safe reading and writing
    machine              devices, compiled programs, signals
    config               the settings of a run
    data                 from sources to trajectories, splits, masks and pairs
    predictive           predictive distributions
    nn                   noise sites and networks; which parameters are θ, ψ and ρ
    objectives, routing  what is minimised; which parameters are updated on train, and which on reg
    predictors           all that predicts: surrogates, ensembles, conformal intervals and other wrappers
    metrics              scores
    forecasts            rollouts of many steps
    methods              the methods that are compared
    training             Algorithm 1
    designs, progress    named settings and sweeps; displays and histories of trainings
    runs                 folders of runs, sweeps and cars, read and written
    cars, studies        car experiments; single trainings, sweeps, workers and plans
    export, report       files for other runtimes; tables, figures and pages
    fitting              `xr.fit`
    cli                  the command line
"""

import importlib
import importlib.metadata
import warnings
from typing import TYPE_CHECKING, Any

__version__ = importlib.metadata.version("crossreg")

if TYPE_CHECKING:
    from crossreg import data as data
    from crossreg import export as export
    from crossreg import forecasts as forecasts
    from crossreg import methods as methods
    from crossreg import metrics as metrics
    from crossreg import nn as nn
    from crossreg.config import Config as Config
    from crossreg.config import DataConfig as DataConfig
    from crossreg.config import ModelConfig as ModelConfig
    from crossreg.config import TrainConfig as TrainConfig
    from crossreg.data.dataset import Data as Data
    from crossreg.data.load import load as load
    from crossreg.designs.presets import preset as preset
    from crossreg.errors import InputError as InputError
    from crossreg.fitting import Fit as Fit
    from crossreg.fitting import fit as fit
    from crossreg.forecasts.forecast import Forecast as Forecast
    from crossreg.forecasts.rollout import rollout as rollout
    from crossreg.metrics.evaluation import evaluate as evaluate
    from crossreg.nn.backbone import cross_regularize as cross_regularize
    from crossreg.nn.build import build_model as build_model
    from crossreg.nn.surrogate import predict as predict
    from crossreg.predictive.in_units import InUnits as InUnits
    from crossreg.predictive.mixture import Mixture as Mixture
    from crossreg.runs.run_folder import Run as Run
    from crossreg.runs.run_folder import load_run as load_run

# Names are imported on first use, so that `crossreg --help` need not import JAX.
_HOMES = {
    "config": ("Config", "DataConfig", "ModelConfig", "TrainConfig"),
    "data.dataset": ("Data",),
    "data.load": ("load",),
    "designs.presets": ("preset",),
    "errors": ("InputError",),
    "fitting": ("Fit", "fit"),
    "forecasts.forecast": ("Forecast",),
    "forecasts.rollout": ("rollout",),
    "metrics.evaluation": ("evaluate",),
    "nn.backbone": ("cross_regularize",),
    "nn.build": ("build_model",),
    "nn.surrogate": ("predict",),
    "predictive.in_units": ("InUnits",),
    "predictive.mixture": ("Mixture",),
    "runs.run_folder": ("Run", "load_run"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_NAMESPACES = ("data", "export", "forecasts", "methods", "metrics", "nn")
# Old names that work for one more release, with a warning, and the names to use instead.
_MOVED = {
    "evaluate_predictor": "evaluate",
    "load_data": "load",
    "load_file": "load",
    "Recalibrated": "predictive.recalibrated.Recalibrated",
    "sigma_per_site": "metrics.sigma_per_site",
    **{name: f"data.{name}" for name in ("Batch", "Pairs", "Trajectories", "make_data")},
    **{name: f"export.{name}" for name in ("export_model", "read_model")},
    **{
        name: f"methods.{name}"
        for name in ("EnsemblePredictor", "fit_conformal", "fit_correlation", "fit_persistence", "fit_temperature")
    },
    **{
        name: f"nn.{name}"
        for name in (
            "AbstractNoise", "Dropout", "GaussianNoise", "Heads", "Psi", "Rho", "Surrogate", "fno", "gaussian_noise",
            "make_heads",
        )
    },
}  # fmt: skip

# Those of them that took other arguments.
_OTHERWISE = {
    "load_data": ("crossreg.data.load", "load_config"),
    "load_file": ("crossreg.data.files.load", "load_file"),
}

__all__ = [*_HOME_OF, *_NAMESPACES]  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return importlib.import_module(f"crossreg.{name}")
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"crossreg.{_HOME_OF[name]}"), name)
    if name in _MOVED:
        home, _, now = f"crossreg.{_MOVED[name]}".rpartition(".")
        warnings.warn(f"crossreg.{name} is now {home}.{now}", DeprecationWarning, stacklevel=2)
        home, now = _OTHERWISE.get(name, (home, now))
        return getattr(importlib.import_module(home), now)
    raise AttributeError(f"module 'crossreg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
