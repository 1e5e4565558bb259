"""Every default, written down: published numbers are those of these settings, and changing one is a decision."""

import dataclasses
import inspect
import math

import jax
import pytest

from crossreg.config import Config, DataConfig, ModelConfig, TrainConfig
from crossreg.fitting import Fit
from crossreg.forecasts.growth import fit_growth
from crossreg.forecasts.rollout import rollout
from crossreg.forecasts.scores import climatology_of, score_by_lead
from crossreg.metrics.evaluation import evaluate
from crossreg.nn.build import build_model
from crossreg.nn.fourier import fno
from crossreg.nn.heads import make_heads
from crossreg.nn.noise import gaussian_noise
from crossreg.nn.surrogate import predict
from crossreg.predictors.conformal import fit_conformal
from crossreg.predictors.correlation import fit_correlation
from crossreg.predictors.ensemble import EnsemblePredictor
from crossreg.predictors.temperature import fit_temperature
from crossreg.runs import forecasting
from crossreg.runs.run_folder import Run
from crossreg.training.step import init_state

DATA = {
    "data": None,
    "field": None,
    "axes": None,
    "split": "trajectory",
    "split_seed": 0,
    "time_stride": 1,
    "in_memory_gib": 1.0,
    "scenario": "diff_ks",
    "num_spatial_dims": None,
    "num_points": None,
    "train_size": 50,
    "reg_size": 50,
    "one_pool": False,
    "test_size": 30,
    "train_horizon": 10,
    "test_horizon": 200,
    "reg_steps": None,
    "observed_fraction": 0.7,
    "mask_per": "run",
    "mask_seed": 0,
    "mask_channel": False,
    "score_on": "all",
}
MODEL = {
    "width": 8,
    "num_blocks": 4,
    "num_modes": 12,
    "predict_increment": False,
    "feature_noise": "generalization",
    "sites": (),
    "sigma_per": "channel",
    "epsilon_per": "channel",
    "dropout_rate": 0.1,
    "lift_noise": 0.0,
    "mode_noise": "none",
    "mode_sigma_per": "mode",
    "mode_epsilon_per": "element",
    "generalization_head": True,
    "log_sigma_pred_start": None,
    "scaled_start": True,
    "log_sigma_gen_start": -5.0,
    "log_sigma_min": -8.0,
    "log_sigma_max": 3.0,
    "head_log_sigma_min": -12.0,
    "head_log_sigma_max": 3.0,
    "lead_growth": False,
}
TRAIN = {
    "steps": 30_000,
    "batch_size": 16,
    "reg_batch_size": None,
    "k_reg": 5,
    "settle": 0.05,
    "num_samples": 4,
    "train_samples": 2,
    "antithetic": True,
    "evaluation_samples": 30,
    "train_objective": "likelihood",
    "train_rollout_steps": 1,
    "reg_horizon": 1,
    "rollout_particles": 30,
    "rollout_steps": 0,
    "reg_objective": "scaled-crps",
    "learning_rate": 2e-3,
    "site_learning_rate": 2e-2,
    "generalization_head_learning_rate": 1e-3,
    "schedule": "decay",
    "clip": 10.0,
    "engine": "auto",
    "scored_pairs": None,
    "evaluate_every": 250,
    "seed": 0,
}


@pytest.mark.parametrize(("group", "table"), [(DataConfig, DATA), (ModelConfig, MODEL), (TrainConfig, TRAIN)])
def test_defaults_are_as_written_down(group, table):
    assert dataclasses.asdict(group()) == table


def test_an_update_from_rollouts_has_half_as_many_fields_as_a_batch():
    """Eight, as the page of choices says; of a single one, that one."""
    assert [TrainConfig(batch_size=size).rollout_batch_size for size in (TrainConfig.batch_size, 5, 1)] == [8, 2, 1]


def test_a_config_has_the_defaults_of_its_groups():
    assert dataclasses.asdict(Config()) == {"data": DATA, "model": MODEL, "train": TRAIN}


@pytest.mark.parametrize(
    ("function", "table"),
    [
        (
            fno,
            {
                "width": 8,
                "num_blocks": 4,
                "num_modes": 12,
                "generalization_head": False,
                "log_sigma_pred_start": -2.0,
                "log_sigma_gen_start": -5.0,
                "head_bounds": (-12.0, 3.0),
                "predict_increment": False,
                "input_rms": None,
                "pointwise_gain": math.sqrt(6),
                "transform": "auto",
            },
        ),
        (
            make_heads,
            {
                "generalization": False,
                "log_sigma_pred_start": -2.0,
                "log_sigma_gen_start": -5.0,
                "bounds": (-12.0, 3.0),
            },
        ),
        (gaussian_noise, {"sigma_per": "channel", "epsilon_per": "channel", "start": -5.0, "bounds": (-8.0, 3.0)}),
        (predict, {"num_samples": 30, "at": None, "path": "plain"}),
        (evaluate, {"num_samples": 30, "seed": 0}),
        (rollout, {"particles": 60, "leads": None, "mask": None, "hide_own": True, "redraw": False, "limits": None}),
        (score_by_lead, {"particles": 60, "steps": None, "seed": 0}),
        (climatology_of, {"most_pairs": 500}),
        (fit_growth, {"horizon": 10, "particles": 60}),
        (fit_conformal, {"num_samples": 30}),
        (fit_temperature, {"form": "stretch", "num_samples": 30}),
        (fit_correlation, {"num_samples": 30}),
        (EnsemblePredictor.__init__, {"num_samples": 30}),
        (Fit.predict, {"key": None, "num_samples": 30}),
        (Fit.evaluate, {"pairs": "test", "num_samples": 30}),
        (Fit.rollout, {"particles": 60}),
        (Run.evaluate, {"pairs": "test", "num_samples": None}),
        (Run.rollout, {"particles": 60}),
    ],
)
def test_functions_have_the_same_defaults(function, table):
    defaults = {name: p.default for name, p in inspect.signature(function).parameters.items()}
    assert {name: defaults[name] for name in table} == table


def test_a_forecast_has_as_many_steps_as_the_page_says():
    assert forecasting.STEPS == 50


def test_the_default_model_is_what_the_defaults_say(data):
    """Settings that nobody reads would be of no use: of two channels on 20 points, with 10 modes, which 20 points hold.

    Lift 2·8 + 8; four blocks of 2·10·8² spectral and 8² + 8 pointwise numbers; three heads of 8·2 + 2; of ρ, five sites
    of 8 σ each and the σ_gen head.
    """
    model = build_model(dataclasses.replace(ModelConfig(), num_modes=10), data.train, key=jax.random.key(0))
    state = init_state(model)
    assert state.theta_psi.vector.size == (2 * 8 + 8) + 4 * (2 * 10 * 64 + 64 + 8) + 2 * (8 * 2 + 2)
    assert state.rho.vector.size == 5 * 8 + 8 * 2 + 2
    with pytest.raises(ValueError, match="num_modes is 12"):  # more than 20 points hold
        build_model(ModelConfig(), data.train, key=jax.random.key(0))
