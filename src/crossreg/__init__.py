"""Calibrated uncertainty for neural PDE surrogates, learned during training.

The backbone θ and the predictive noise ψ learn on the train split; a few generalization-noise scales ρ
learn only from gradients of a held-out regularization split. One model, no ensemble.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossreg.config import Config as Config
    from crossreg.config import DataConfig as DataConfig
    from crossreg.config import ModelConfig as ModelConfig
    from crossreg.config import TrainConfig as TrainConfig
    from crossreg.data.files.load import load_file as load_file
    from crossreg.data.pairs import Batch as Batch
    from crossreg.data.pairs import Data as Data
    from crossreg.data.pairs import Pairs as Pairs
    from crossreg.data.pairs import load as load
    from crossreg.data.pairs import load_data as load_data
    from crossreg.data.pairs import make_data as make_data
    from crossreg.data.trajectories import Trajectories as Trajectories
    from crossreg.designs.presets import preset as preset
    from crossreg.errors import InputError as InputError
    from crossreg.export.tensors import read_model as read_model
    from crossreg.export.write import export_model as export_model
    from crossreg.fitting import Fit as Fit
    from crossreg.fitting import fit as fit
    from crossreg.metrics.evaluation import evaluate as evaluate
    from crossreg.metrics.evaluation import evaluate_predictor as evaluate_predictor
    from crossreg.metrics.evaluation import sigma_per_site as sigma_per_site
    from crossreg.nn.backbone import cross_regularize as cross_regularize
    from crossreg.nn.build import build_model as build_model
    from crossreg.nn.fno import fno as fno
    from crossreg.nn.groups import Psi as Psi
    from crossreg.nn.groups import Rho as Rho
    from crossreg.nn.heads import Heads as Heads
    from crossreg.nn.heads import make_heads as make_heads
    from crossreg.nn.noise import AbstractNoise as AbstractNoise
    from crossreg.nn.noise import Dropout as Dropout
    from crossreg.nn.noise import GaussianNoise as GaussianNoise
    from crossreg.nn.noise import gaussian_noise as gaussian_noise
    from crossreg.nn.surrogate import Surrogate as Surrogate
    from crossreg.nn.surrogate import predict as predict
    from crossreg.predictive.in_units import InUnits as InUnits
    from crossreg.predictive.mixture import Mixture as Mixture
    from crossreg.predictive.mixture import Recalibrated as Recalibrated
    from crossreg.predictors.conformal import fit_conformal as fit_conformal
    from crossreg.predictors.correlation import fit_correlation as fit_correlation
    from crossreg.predictors.ensemble import EnsemblePredictor as EnsemblePredictor
    from crossreg.predictors.persistence import fit_persistence as fit_persistence
    from crossreg.predictors.temperature import fit_temperature as fit_temperature
    from crossreg.runs.run_folder import Run as Run
    from crossreg.runs.run_folder import load_run as load_run

# Where each public name lives. Names are imported on first use, so that importing the package, and with
# it `crossreg --help`, does not import JAX.
_HOMES = {
    "config": ("Config", "DataConfig", "ModelConfig", "TrainConfig"),
    "data.files.load": ("load_file",),
    "data.pairs": ("Batch", "Data", "Pairs", "load", "load_data", "make_data"),
    "data.trajectories": ("Trajectories",),
    "errors": ("InputError",),
    "export.tensors": ("read_model",),
    "export.write": ("export_model",),
    "predictors.conformal": ("fit_conformal",),
    "predictors.correlation": ("fit_correlation",),
    "predictors.ensemble": ("EnsemblePredictor",),
    "predictors.persistence": ("fit_persistence",),
    "predictors.temperature": ("fit_temperature",),
    "metrics.evaluation": ("evaluate", "evaluate_predictor", "sigma_per_site"),
    "nn.backbone": ("cross_regularize",),
    "nn.build": ("build_model",),
    "nn.fno": ("fno",),
    "nn.groups": ("Psi", "Rho"),
    "nn.heads": ("Heads", "make_heads"),
    "nn.noise": ("AbstractNoise", "Dropout", "GaussianNoise", "gaussian_noise"),
    "nn.surrogate": ("Surrogate", "predict"),
    "predictive.in_units": ("InUnits",),
    "predictive.mixture": ("Mixture", "Recalibrated"),
    "designs.presets": ("preset",),
    "runs.run_folder": ("Run", "load_run"),
    "fitting": ("Fit", "fit"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name not in _HOME_OF:
        raise AttributeError(f"module 'crossreg' has no attribute {name!r}")
    return getattr(importlib.import_module(f"crossreg.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
