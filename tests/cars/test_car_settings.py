"""The flags of `crossreg car`: all settings, from one place, with the defaults of a profile."""

import dataclasses
import subprocess
import sys

import pytest
import yaml

from crossreg.cli import main as cli
from crossreg.config import Config, changed_fields
from crossreg.designs.car_study import ALL_METHODS, NO_FLAGS, car_study, methods_of, settings_of, study_of
from crossreg.errors import InputError
from crossreg.methods.names import parse_methods


def test_every_setting_is_a_flag():
    code = (
        "import sys\nfrom crossreg.cli.main import main\ntry: main(['car', '--profile', 'full', '--help'])\n"
        "except SystemExit: pass\nassert 'jax' not in sys.modules"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    study = car_study("full")
    groups = (study.model, study.train)
    settings = {f.name: f for part in groups for f in dataclasses.fields(part)}
    own = [f.name for f in dataclasses.fields(study) if f.name not in ("model", "train")]
    for name in (*own, *settings):
        assert (f"--{name.replace('_', '-')} " in shown.replace(",", " ")) == (name not in NO_FLAGS), name
    assert "Adam's learning rate for the σ of the noise sites" in " ".join(shown.replace("│", " ").split())
    assert "(default: 10000)" in shown


def test_every_flag_reaches_a_method_and_no_other_setting_does():
    study = car_study("full")
    methods = parse_methods("xreg,xreg-modes,dropout,dropout-reg,ensemble,fixed-noise,unregularized")

    def change(name: str, value: object) -> list[bool]:
        """Which methods train or predict otherwise."""
        configs = [[m.configs(study.replace(**fields).config) for m in methods] for fields in ({}, {name: value})]
        return [[*map(used, one)] != [*map(used, other)] for one, other in zip(*configs, strict=True)]

    values: dict[str, object] = {"width": 9, "num_blocks": 3, "num_modes": 5, "mode_sigma_per": "layer"}
    values |= {"mode_epsilon_per": "channel", "log_sigma_pred_start": -2.0, "scaled_start": False}
    values |= {"log_sigma_gen_start": -4.0, "log_sigma_min": -9.0, "log_sigma_max": 2.0, "head_log_sigma_min": -9.0}
    values |= {"head_log_sigma_max": 2.0, "steps": 3, "batch_size": 7, "k_reg": 2, "settle": 0.3, "num_samples": 3}
    values |= {"evaluation_samples": 4, "learning_rate": 0.3, "site_learning_rate": 0.2, "clip": 0.0, "engine": "fused"}
    values |= {"generalization_head_learning_rate": 0.1, "schedule": "constant", "evaluate_every": 5}
    values |= {"antithetic": True, "reg_batch_size": 3}
    without: dict[str, object] = {"feature_noise": "both", "sites": ("block1",), "sigma_per": "layer"}
    without |= {"epsilon_per": "element", "dropout_rate": 0.7, "lift_noise": 0.3, "mode_noise": "both"}
    without |= {"generalization_head": False, "train_samples": 7, "reg_objective": "fair", "train_objective": "crps"}
    fields = {f.name for part in (study.model, study.train) for f in dataclasses.fields(part)}
    assert values.keys() == fields - {*NO_FLAGS}
    of_time = {
        "reg_horizon",
        "rollout_particles",
        "train_rollout_steps",
        "lead_growth",
        "rollout_steps",
    }  # a car is no step
    assert without.keys() == {*NO_FLAGS} - {"seed", "predict_increment", "scored_pairs"} - of_time
    for name, value in values.items():
        assert any(change(name, value)), name
    for name, value in without.items():
        assert not any(change(name, value)), name


def used(config: Config) -> Config:
    """A config without what a model of its kind has not."""
    if config.model.feature_noise not in ("generalization", "both"):
        config = config.replace(sigma_per="channel", epsilon_per="channel")
    if config.model.feature_noise != "dropout":
        config = config.replace(dropout_rate=0.1)
    return config if config.model.learns_on_reg else config.replace(reg_objective="scaled-crps")


def test_flags_that_are_not_given_are_as_the_profile_has_them(monkeypatch, tmp_path):
    seen = []

    def stop(study, folder, **_):
        seen.append(study)
        raise InputError("seen")

    monkeypatch.setattr("crossreg.cars.study.run_car", stop)
    for flags in ([], ["--profile", "full"], ["--data", "a"], ["--data=a", "--profile=full", "--k-reg", "7"]):
        assert cli.main(["car", "--out", str(tmp_path), *flags]) == 2
    expected = [car_study("quick"), car_study("full"), car_study("quick", data="a")]
    assert seen == [*expected, car_study("full", data="a").replace(k_reg=7)]
    assert (seen[2].grid, seen[2].train.steps) == (64, 2500)


OWN = {
    "data": "family", "methods": "xreg,unregularized,dropout,ensemble", "seeds": 5, "train_size": 30, "reg_size": 50,
    "test_size": 60, "split_seed": 0, "points": 2850, "grid": 64, "own_maps": False,
}  # fmt: skip
NETWORK = {"width": 32, "num_modes": 16, "batch_size": 4, "steps": 10_000, "learning_rate": 1e-3}
NETWORK |= {"num_samples": 10, "antithetic": False, "reg_batch_size": 4}
NETWORK |= {"site_learning_rate": 1e-2, "settle": 0.1}
QUICK = {"seeds": 1, "train_size": 20, "reg_size": 20, "test_size": 20, "points": 714}
QUICK_NETWORK = {"width": 16, "num_modes": 8, "num_samples": 6, "steps": 2500, "settle": 0.4}


@pytest.mark.parametrize(
    ("profile", "data", "own", "network"),
    [
        ("full", "family", {}, {}),
        ("full", "mine", {"data": "mine"}, {}),
        ("quick", "family", QUICK | {"grid": 32}, QUICK_NETWORK),
        ("quick", "mine", QUICK | {"data": "mine"}, QUICK_NETWORK),
    ],
)
def test_a_profile_is_what_published_numbers_were_made_with(profile, data, own, network):
    study = car_study(profile, data=data)
    found = {f.name: getattr(study, f.name) for f in dataclasses.fields(study) if f.name not in ("model", "train")}
    assert found == OWN | own
    assert changed_fields(study.config) == NETWORK | network
    train = study.train
    assert (train.site_learning_rate, train.generalization_head_learning_rate) == (1e-2, 1e-3)


def test_settings_hold_everything_that_a_study_is_made_of():
    study = car_study("full", data="mine").replace(own_maps=True, clip=7.0)
    groups = settings_of(study)
    assert study_of(groups) == study
    # As a folder holds it, of a version that did not know the last setting.
    stored = yaml.safe_load(yaml.safe_dump(groups))
    del stored["train"][[*stored["train"]][-1]]
    assert study_of(stored) == study


def test_all_methods_are_those_that_are_named():
    assert [m.name for m in methods_of(car_study("full").replace(methods="all"))] == ALL_METHODS.split(",")
    own = ["xreg", "unregularized", "dropout", "ensemble", "xreg-internal-mm", "xreg-internal-mixture"]
    plain = own[1:4]
    early = [f"{name}+early" for name in plain]
    fitted = ["unregularized+temperature", "unregularized+sigma-temperature", "dropout+conformal"]
    fitted += [f"ensemble+{wrapper}" for wrapper in ("temperature", "sigma-temperature", "conformal")]
    assert ALL_METHODS.split(",") == [*own, *early, *fitted, "dropout-reg", *(f"{name}-all-data" for name in plain)]
